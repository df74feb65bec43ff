-- What became of a message: which broker made an attempt and how long a successful one took, where
-- it is known; the redrives of dead letters, each with the death that it ended. status_events are
-- events that a producer wants to hear of, until a batch takes them over; status_batches are
-- batches on their way.
-- +goose Up
ALTER TABLE attempts ADD COLUMN node INTEGER;

ALTER TABLE deliveries ADD COLUMN node INTEGER;

ALTER TABLE deliveries ADD COLUMN duration_ms INTEGER;

CREATE TABLE redrives (
    consumer_no INTEGER NOT NULL,
    message_id  BLOB    NOT NULL,
    at_ms       INTEGER NOT NULL,
    how         INTEGER NOT NULL,
    died_ms     INTEGER NOT NULL,
    attempts    INTEGER NOT NULL,
    status_code INTEGER NOT NULL,
    reason_code INTEGER NOT NULL,
    reason      BLOB    NOT NULL,
    PRIMARY KEY (consumer_no, message_id, at_ms)
) WITHOUT ROWID;

CREATE TABLE status_events (
    producer_no INTEGER NOT NULL,
    event_key   BLOB    NOT NULL,
    attempt     INTEGER NOT NULL,
    status_code INTEGER NOT NULL,
    reason_code INTEGER NOT NULL,
    PRIMARY KEY (producer_no, event_key)
) WITHOUT ROWID;

CREATE TABLE status_batches (
    id          BLOB    NOT NULL PRIMARY KEY,
    producer_no INTEGER NOT NULL,
    body        BLOB    NOT NULL
) WITHOUT ROWID;
