-- How long the jobs of a consumer are held because it asked for that (Retry-After), or refused an
-- access token that was just renewed. One row for each consumer that ever did, until what it said
-- is about no longer holds.
-- +goose NO TRANSACTION
-- +goose Up
CREATE TABLE IF NOT EXISTS holds (
    consumer_no INT UNSIGNED   NOT NULL,
    since_ms    BIGINT         NOT NULL,
    until_ms    BIGINT         NOT NULL,
    held_by     VARBINARY(255) NOT NULL,
    PRIMARY KEY (consumer_no)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;
