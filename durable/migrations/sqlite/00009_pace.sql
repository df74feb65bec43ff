-- How fast adaptive consumers are delivered to, and the attempts of the present period. One
-- row for each consumer that was ever adaptive and had an attempt.
-- +goose Up
CREATE TABLE IF NOT EXISTS paces (
    consumer_no INTEGER NOT NULL,
    mode        INTEGER NOT NULL,
    rate        INTEGER NOT NULL,
    good        INTEGER NOT NULL,
    strained    INTEGER NOT NULL,
    since_ms    INTEGER NOT NULL,
    PRIMARY KEY (consumer_no)
) WITHOUT ROWID;
