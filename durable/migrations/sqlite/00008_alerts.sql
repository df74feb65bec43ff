-- Alerts on their way: a row for each alert and place that it still has to reach. Consumers
-- whose dead letters grow, and for which that was alerted.
-- +goose Up
CREATE TABLE IF NOT EXISTS alerts (
    sink        INTEGER NOT NULL,
    at_ms       INTEGER NOT NULL,
    consumer_no INTEGER NOT NULL,
    event       INTEGER NOT NULL,
    channel_id  BLOB    NOT NULL,
    consumer_id BLOB    NOT NULL,
    reason      BLOB    NOT NULL,
    tries       INTEGER NOT NULL,
    next_ms     INTEGER NOT NULL,
    PRIMARY KEY (sink, at_ms, consumer_no, event)
) WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS dlq_growth (
    consumer_no INTEGER NOT NULL,
    since_ms    INTEGER NOT NULL,
    PRIMARY KEY (consumer_no)
) WITHOUT ROWID;
