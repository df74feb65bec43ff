-- The store's clock, in one row: ms is its floor, ahead_ms is added to the server's clock, which went
-- back steps times. beat counts the raises of the floor, history names the history of the store.
-- +goose Up
CREATE TABLE clock (
    no       INTEGER NOT NULL,
    ms       INTEGER NOT NULL,
    ahead_ms INTEGER NOT NULL,
    steps    INTEGER NOT NULL,
    beat     INTEGER NOT NULL,
    history  INTEGER NOT NULL,
    PRIMARY KEY (no)
) WITHOUT ROWID;

INSERT INTO clock (no, ms, ahead_ms, steps, beat, history)
VALUES (0, 0, 0, 0, 0, 0);
