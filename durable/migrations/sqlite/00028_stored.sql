-- What each producer stores: sums of the messages up to a mark in each channel. Without a bound
-- both tables are empty. See durable/stored.go.
-- +goose Up
CREATE TABLE stored_sums (
    producer_no INTEGER NOT NULL PRIMARY KEY,
    messages    INTEGER NOT NULL,
    bytes       INTEGER NOT NULL
);

CREATE TABLE stored_marks (
    channel_no INTEGER NOT NULL PRIMARY KEY,
    through_id BLOB    NOT NULL
);
