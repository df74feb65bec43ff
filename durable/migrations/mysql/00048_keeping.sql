-- What the channels with limits of their own on what is kept have: up to which message their messages
-- are counted, and what their limits have removed; and the counts, by stretches of messages. Without
-- such a channel both tables are empty. See durable/keeping.go.
-- +goose NO TRANSACTION
-- +goose Up
CREATE TABLE IF NOT EXISTS kept_channels (
    channel_no INT UNSIGNED     NOT NULL PRIMARY KEY,
    counted_id BINARY(12)       NOT NULL,
    removed_id BINARY(12)       NOT NULL,
    removed    BIGINT           NOT NULL DEFAULT 0,
    limit_code TINYINT UNSIGNED NOT NULL DEFAULT 0,
    at_ms      BIGINT           NOT NULL DEFAULT 0
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

CREATE TABLE IF NOT EXISTS kept_stretches (
    channel_no INT UNSIGNED NOT NULL,
    through_id BINARY(12)   NOT NULL,
    messages   BIGINT       NOT NULL,
    bytes      BIGINT       NOT NULL,
    PRIMARY KEY (channel_no, through_id)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;
