-- The chain of messages with an ordering key. ordering_keys has the last message of each
-- key, and the one before it; ordered has a row for each message with a key.
-- +goose NO TRANSACTION
-- +goose Up
CREATE TABLE IF NOT EXISTS ordering_keys (
    channel_no INT UNSIGNED NOT NULL,
    digest     BINARY(16)   NOT NULL,
    last_id    BINARY(12)   NOT NULL,
    prev_id    BINARY(12)   NOT NULL,
    PRIMARY KEY (channel_no, digest)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

CREATE TABLE IF NOT EXISTS ordered (
    channel_no INT UNSIGNED NOT NULL,
    message_id BINARY(12)   NOT NULL,
    prev_id    BINARY(12)   NOT NULL,
    digest     BINARY(16)   NOT NULL,
    PRIMARY KEY (channel_no, message_id),
    KEY ordered_prev (channel_no, prev_id)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;
