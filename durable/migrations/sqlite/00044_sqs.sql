-- Access keys of SQS clients. A key is of one channel, and goes with it. The secret is stored as it is: it
-- signs requests, and whoever checks a signature needs it. See durable/sqskey.go.
-- +goose Up
CREATE TABLE IF NOT EXISTS sqs_keys (
    id         BLOB    NOT NULL,
    channel_no INTEGER NOT NULL,
    secret     BLOB    NOT NULL,
    created_ms INTEGER NOT NULL,
    PRIMARY KEY (id)
) WITHOUT ROWID;

CREATE INDEX IF NOT EXISTS sqs_keys_channel ON sqs_keys (channel_no);
