-- The leases of pull jobs that a broker with an embedded Redis had when it stopped, until its next
-- start. See durable/keptlease.go. As in 00002, the change may run again.
-- +goose NO TRANSACTION
-- +goose Up
CREATE TABLE IF NOT EXISTS kept_leases (
    consumer_no INT UNSIGNED      NOT NULL,
    message_id  BINARY(12)        NOT NULL,
    priority    SMALLINT UNSIGNED NOT NULL,
    attempt     INT UNSIGNED      NOT NULL,
    token       VARBINARY(64)     NOT NULL,
    until_ms    BIGINT            NOT NULL,
    PRIMARY KEY (consumer_no, message_id)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;
