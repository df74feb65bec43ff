-- What the channels with limits of their own on what is kept have: up to which message their messages
-- are counted, and what their limits have removed; and the counts, by stretches of messages. Without
-- such a channel both tables are empty. See durable/keeping.go.
-- +goose Up
CREATE TABLE kept_channels (
    channel_no INTEGER NOT NULL PRIMARY KEY,
    counted_id BLOB    NOT NULL,
    removed_id BLOB    NOT NULL,
    removed    INTEGER NOT NULL DEFAULT 0,
    limit_code INTEGER NOT NULL DEFAULT 0,
    at_ms      INTEGER NOT NULL DEFAULT 0
);

CREATE TABLE kept_stretches (
    channel_no INTEGER NOT NULL,
    through_id BLOB    NOT NULL,
    messages   INTEGER NOT NULL,
    bytes      INTEGER NOT NULL,
    PRIMARY KEY (channel_no, through_id)
) WITHOUT ROWID;
