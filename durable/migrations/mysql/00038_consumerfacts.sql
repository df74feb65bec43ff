-- The last attempts of a consumer, as the brokers last wrote them: at most a second old. One row for
-- each consumer that ever had an attempt.
-- +goose NO TRANSACTION
-- +goose Up
CREATE TABLE IF NOT EXISTS consumer_facts (
    consumer_no INT UNSIGNED   NOT NULL,
    attempt_ms  BIGINT         NOT NULL,
    success_ms  BIGINT         NOT NULL,
    status_code INT            NOT NULL,
    error       VARBINARY(255) NOT NULL,
    PRIMARY KEY (consumer_no)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;
