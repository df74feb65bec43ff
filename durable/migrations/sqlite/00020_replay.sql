-- Replays of consumers. no is from the sequence of consumers.no, so outcome tables take it as a
-- consumer. The messages are those with after_id < ID <= through_id; up to settled_id each job has
-- an outcome or a row in open_jobs, and jobs, bytes count them. matched is what was counted at the
-- begin. delivered and dead are written at the end.
-- +goose Up
CREATE TABLE replays (
    no          INTEGER NOT NULL PRIMARY KEY,
    channel_no  INTEGER NOT NULL,
    consumer_no INTEGER NOT NULL,
    after_id    BLOB    NOT NULL,
    through_id  BLOB    NOT NULL,
    selected    INTEGER NOT NULL,
    filter      BLOB    NOT NULL,
    rate        BLOB    NOT NULL,
    state       INTEGER NOT NULL,
    created_ms  INTEGER NOT NULL,
    state_ms    INTEGER NOT NULL,
    removed_ms  INTEGER NOT NULL,
    matched     INTEGER NOT NULL,
    bytes       INTEGER NOT NULL,
    estimated   INTEGER NOT NULL,
    settled_id  BLOB    NOT NULL,
    jobs        INTEGER NOT NULL,
    job_bytes   INTEGER NOT NULL,
    delivered   INTEGER NOT NULL,
    dead        INTEGER NOT NULL,
    version     INTEGER NOT NULL
);

CREATE INDEX replays_consumer ON replays (channel_no, consumer_no, no);
