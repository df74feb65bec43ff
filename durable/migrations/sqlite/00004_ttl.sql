-- The reason of a death, what became of a dead letter, and the life of messages and of
-- redriven jobs. ttl_ms is the time to live that a message has itself, 0 none; expiring has
-- one row for each such message until its jobs are over. redriven_ms is when an open job was
-- dead last, and redrives counts how often the broker itself has redriven it.
-- +goose Up
ALTER TABLE dead_jobs ADD COLUMN reason_code INTEGER NOT NULL DEFAULT 0;

ALTER TABLE dead_jobs ADD COLUMN redrives INTEGER NOT NULL DEFAULT 0;

ALTER TABLE dead_jobs ADD COLUMN disposal INTEGER NOT NULL DEFAULT 0;

ALTER TABLE open_jobs ADD COLUMN redriven_ms INTEGER NOT NULL DEFAULT 0;

ALTER TABLE open_jobs ADD COLUMN redrives INTEGER NOT NULL DEFAULT 0;

ALTER TABLE messages ADD COLUMN ttl_ms INTEGER NOT NULL DEFAULT 0;

CREATE TABLE IF NOT EXISTS expiring (
    expires_ms INTEGER NOT NULL,
    channel_no INTEGER NOT NULL,
    id         BLOB    NOT NULL,
    PRIMARY KEY (expires_ms, channel_no, id)
) WITHOUT ROWID;
