-- Whether jobs of a consumer are delivered and messages of a channel accepted, and the
-- failures that count for a tombstone.
-- +goose Up
ALTER TABLE consumers ADD COLUMN state INTEGER NOT NULL DEFAULT 0;
ALTER TABLE consumers ADD COLUMN state_reason BLOB NOT NULL DEFAULT x'';
ALTER TABLE consumers ADD COLUMN state_ms INTEGER NOT NULL DEFAULT 0;
ALTER TABLE consumers ADD COLUMN failures_ms INTEGER NOT NULL DEFAULT 0;
ALTER TABLE consumers ADD COLUMN probe_ms INTEGER NOT NULL DEFAULT 0;

UPDATE consumers
SET state_ms = changed_ms
WHERE state_ms = 0;

ALTER TABLE channels ADD COLUMN paused INTEGER NOT NULL DEFAULT 0;

CREATE TABLE IF NOT EXISTS failures (
    consumer_no  INTEGER NOT NULL,
    times        BLOB    NOT NULL,
    PRIMARY KEY (consumer_no)
) WITHOUT ROWID;
