-- How long the jobs of a consumer are held because it asked for that (Retry-After), or refused an
-- access token that was just renewed. One row for each consumer that ever did, until what it said
-- is about no longer holds.
-- +goose Up
CREATE TABLE IF NOT EXISTS holds (
    consumer_no INTEGER NOT NULL,
    since_ms    INTEGER NOT NULL,
    until_ms    INTEGER NOT NULL,
    held_by     TEXT    NOT NULL,
    PRIMARY KEY (consumer_no)
) WITHOUT ROWID;
