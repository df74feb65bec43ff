-- In which store a channel is, where an installation has several (BROKER_MYSQL_DSNS). Only the
-- store with the catalogue has rows. An empty store is that one.
-- +goose NO TRANSACTION
-- +goose Up
CREATE TABLE IF NOT EXISTS places (
    channel_id VARBINARY(255) NOT NULL,
    store      VARBINARY(64)  NOT NULL,
    at_ms      BIGINT         NOT NULL,
    PRIMARY KEY (channel_id)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;
