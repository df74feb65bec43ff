-- The last attempts of a consumer, as the brokers last wrote them: at most a second old. One row for
-- each consumer that ever had an attempt.
-- +goose Up
CREATE TABLE IF NOT EXISTS consumer_facts (
    consumer_no INTEGER NOT NULL,
    attempt_ms  INTEGER NOT NULL,
    success_ms  INTEGER NOT NULL,
    status_code INTEGER NOT NULL,
    error       BLOB    NOT NULL,
    PRIMARY KEY (consumer_no)
) WITHOUT ROWID;
