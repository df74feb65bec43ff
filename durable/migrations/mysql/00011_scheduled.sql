-- Scheduled messages. status is 0 until the last message of a schedule is sent. occurrence is the
-- number of the message that is sent at due_ms; message_id is the message that was sent last.
-- While a schedule waits, its message ID is in message_keys with the ID of the schedule.
-- +goose NO TRANSACTION
-- +goose Up
CREATE TABLE IF NOT EXISTS scheduled (
    id           BINARY(12)        NOT NULL,
    channel_no   INT UNSIGNED      NOT NULL,
    producer_no  INT UNSIGNED      NOT NULL,
    status       TINYINT UNSIGNED  NOT NULL,
    due_ms       BIGINT            NOT NULL,
    occurrence   BIGINT            NOT NULL,
    message_id   BINARY(12)        NULL,
    msg_key      VARBINARY(255)    NULL,
    recurrence   VARBINARY(255)    NOT NULL,
    priority     SMALLINT UNSIGNED NOT NULL,
    ttl_ms       BIGINT            NOT NULL,
    content_type VARBINARY(255)    NOT NULL,
    headers      BLOB              NOT NULL,
    payload      LONGBLOB          NOT NULL,
    PRIMARY KEY (id),
    UNIQUE KEY scheduled_msg_key (channel_no, msg_key),
    KEY scheduled_due (status, due_ms),
    KEY scheduled_channel (channel_no, status, due_ms)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;
