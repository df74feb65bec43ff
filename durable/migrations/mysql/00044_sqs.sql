-- Access keys of SQS clients. A key is of one channel, and goes with it. The secret is stored as it is: it
-- signs requests, and whoever checks a signature needs it. See durable/sqskey.go.
-- +goose NO TRANSACTION
-- +goose Up
CREATE TABLE IF NOT EXISTS sqs_keys (
    id         VARBINARY(64)  NOT NULL,
    channel_no INT UNSIGNED   NOT NULL,
    secret     VARBINARY(128) NOT NULL,
    created_ms BIGINT         NOT NULL,
    PRIMARY KEY (id),
    KEY sqs_keys_channel (channel_no)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;
