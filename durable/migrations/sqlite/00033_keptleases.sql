-- The leases of pull jobs that a broker with an embedded Redis had when it stopped, until its next
-- start. See durable/keptlease.go.
-- +goose Up
CREATE TABLE kept_leases (
    consumer_no INTEGER NOT NULL,
    message_id  BLOB    NOT NULL,
    priority    INTEGER NOT NULL,
    attempt     INTEGER NOT NULL,
    token       BLOB    NOT NULL,
    until_ms    INTEGER NOT NULL,
    PRIMARY KEY (consumer_no, message_id)
) WITHOUT ROWID;
