-- Scheduled messages. status is 0 until the last message of a schedule is sent. occurrence is the
-- number of the message that is sent at due_ms; message_id is the message that was sent last.
-- While a schedule waits, its message ID is in message_keys with the ID of the schedule.
-- +goose Up
CREATE TABLE scheduled (
    id           BLOB    NOT NULL PRIMARY KEY,
    channel_no   INTEGER NOT NULL,
    producer_no  INTEGER NOT NULL,
    status       INTEGER NOT NULL,
    due_ms       INTEGER NOT NULL,
    occurrence   INTEGER NOT NULL,
    message_id   BLOB,
    msg_key      BLOB,
    recurrence   BLOB    NOT NULL,
    priority     INTEGER NOT NULL,
    ttl_ms       INTEGER NOT NULL,
    content_type BLOB    NOT NULL,
    headers      BLOB    NOT NULL,
    payload      BLOB    NOT NULL
);

CREATE UNIQUE INDEX scheduled_msg_key ON scheduled (channel_no, msg_key);

CREATE INDEX scheduled_due ON scheduled (status, due_ms, id);

CREATE INDEX scheduled_channel ON scheduled (channel_no, status, due_ms, id);
