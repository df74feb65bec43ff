-- What each producer stores: sums of the messages up to a mark in each channel. Without a bound
-- both tables are empty. See durable/stored.go.
-- +goose NO TRANSACTION
-- +goose Up
CREATE TABLE IF NOT EXISTS stored_sums (
    producer_no INT UNSIGNED NOT NULL PRIMARY KEY,
    messages    BIGINT       NOT NULL,
    bytes       BIGINT       NOT NULL
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

CREATE TABLE IF NOT EXISTS stored_marks (
    channel_no INT UNSIGNED NOT NULL PRIMARY KEY,
    through_id BINARY(12)   NOT NULL
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;
