-- See the same file for MySQL. SQLite has no second server: the table stays empty.
-- +goose Up
CREATE TABLE proofs (
    no     INTEGER NOT NULL PRIMARY KEY,
    writes INTEGER NOT NULL
);
