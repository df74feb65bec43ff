-- In which store a channel is, where an installation has several (BROKER_MYSQL_DSNS). The embedded
-- store is always the only one.
-- +goose Up
CREATE TABLE IF NOT EXISTS places (
    channel_id BLOB    NOT NULL,
    store      BLOB    NOT NULL,
    at_ms      INTEGER NOT NULL,
    PRIMARY KEY (channel_id)
) WITHOUT ROWID;
