-- The chain of messages with an ordering key. ordering_keys has the last message of each
-- key, and the one before it; ordered has a row for each message with a key.
-- +goose Up
CREATE TABLE IF NOT EXISTS ordering_keys (
    channel_no INTEGER NOT NULL,
    digest     BLOB    NOT NULL,
    last_id    BLOB    NOT NULL,
    prev_id    BLOB    NOT NULL,
    PRIMARY KEY (channel_no, digest)
) WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS ordered (
    channel_no INTEGER NOT NULL,
    message_id BLOB    NOT NULL,
    prev_id    BLOB    NOT NULL,
    digest     BLOB    NOT NULL,
    PRIMARY KEY (channel_no, message_id)
) WITHOUT ROWID;

CREATE INDEX IF NOT EXISTS ordered_prev ON ordered (channel_no, prev_id);
