-- How a channel takes messages in: a record of package policy, empty where it sets nothing.
-- idempotency_keys has the keys of Idempotency-Key, with a digest of the body. They outlive
-- their messages, and end by their age, which their ID tells.
-- +goose Up
ALTER TABLE channels ADD COLUMN intake BLOB NOT NULL DEFAULT x'';

CREATE TABLE idempotency_keys (
    channel_no  INTEGER NOT NULL,
    msg_key     BLOB    NOT NULL,
    id          BLOB    NOT NULL,
    fingerprint BLOB    NOT NULL,
    PRIMARY KEY (channel_no, msg_key)
) WITHOUT ROWID;

CREATE INDEX idempotency_keys_id ON idempotency_keys (id);
