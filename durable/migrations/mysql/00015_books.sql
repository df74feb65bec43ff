-- The books of consumers: sums of stretches of messages below the settled watermark, which do not
-- overlap. A stretch has the messages with after_id < ID <= through_id.
-- +goose NO TRANSACTION
-- +goose Up
CREATE TABLE IF NOT EXISTS books (
    consumer_no INT UNSIGNED NOT NULL,
    after_id    BINARY(12)   NOT NULL,
    through_id  BINARY(12)   NOT NULL,
    accepted    BIGINT       NOT NULL,
    filtered    BIGINT       NOT NULL,
    delivered   BIGINT       NOT NULL,
    PRIMARY KEY (consumer_no, after_id)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;
