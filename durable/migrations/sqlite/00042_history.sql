-- The history: what brokers counted in slots of 10 seconds, a minute and ten minutes (step, in seconds),
-- of the whole (scope 0), of a channel (1) and of a consumer (2) with its number. A row is what one
-- broker counted since it started, in one slot, so it may be written again; a reader adds the rows of all
-- writers. acks and deliveries are encoded histograms. See durable/historyrow.go.
-- +goose Up
CREATE TABLE IF NOT EXISTS history (
    scope      INTEGER NOT NULL,
    no         INTEGER NOT NULL,
    step       INTEGER NOT NULL,
    at_ms      INTEGER NOT NULL,
    writer     INTEGER NOT NULL,
    accepted   INTEGER NOT NULL,
    delivered  INTEGER NOT NULL,
    failed     INTEGER NOT NULL,
    dead       INTEGER NOT NULL,
    oldest_ms  INTEGER NOT NULL,
    acks       BLOB    NOT NULL,
    deliveries BLOB    NOT NULL,
    PRIMARY KEY (scope, no, step, at_ms, writer)
) WITHOUT ROWID;

CREATE INDEX IF NOT EXISTS history_at ON history (step, at_ms);

-- What happened: the start of a broker (kind 1), the first broker of a version (2), the change of a policy
-- (3) of a channel, or of a consumer. no is random, for two marks of one millisecond.
CREATE TABLE IF NOT EXISTS history_marks (
    at_ms       INTEGER NOT NULL,
    no          INTEGER NOT NULL,
    kind        INTEGER NOT NULL,
    channel_no  INTEGER NOT NULL,
    consumer_no INTEGER NOT NULL,
    note        BLOB    NOT NULL,
    PRIMARY KEY (at_ms, no)
) WITHOUT ROWID;
