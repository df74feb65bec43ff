-- What a producer wants to get back: a record of package policy, NULL where it sets nothing.
-- exchanges has a row for each job whose consumer has responses on, from its outcome on. due_ms is
-- when a broker has to do something about the row: the result is polled, the response is published
-- to the sender, or its body is dropped. It is the largest number where nothing is left to do.
-- +goose Up
ALTER TABLE producers ADD COLUMN settings BLOB;

CREATE TABLE exchanges (
    consumer_no  INTEGER NOT NULL,
    message_id   BLOB    NOT NULL,
    state        INTEGER NOT NULL,
    goes_back    INTEGER NOT NULL,
    attempt      INTEGER NOT NULL,
    status_code  INTEGER NOT NULL,
    truncated    INTEGER NOT NULL,
    delivered_ms INTEGER NOT NULL,
    received_ms  INTEGER NOT NULL,
    ended_ms     INTEGER NOT NULL,
    deadline_ms  INTEGER NOT NULL,
    keep_ms      INTEGER NOT NULL,
    due_ms       INTEGER NOT NULL,
    tries        INTEGER NOT NULL,
    url          BLOB    NOT NULL,
    reason       BLOB    NOT NULL,
    headers      BLOB    NOT NULL,
    body         BLOB    NOT NULL,
    PRIMARY KEY (consumer_no, message_id)
);

CREATE INDEX exchanges_due ON exchanges (consumer_no, due_ms, message_id);
