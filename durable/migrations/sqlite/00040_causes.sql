-- The cause of a dead letter, a fingerprint of package cause, and how many dead letters of a consumer
-- have it. 0 is the group of those without one of their own, such as the older ones. A row of
-- dead_groups has the number of rows of dead_jobs with its fingerprint that are not removed from the
-- DLQ, and the latest of them; it goes with the last one. See durable/deadgroup.go.
-- +goose Up
ALTER TABLE dead_jobs ADD COLUMN fingerprint INTEGER NOT NULL DEFAULT 0;

CREATE INDEX IF NOT EXISTS dead_jobs_fingerprint ON dead_jobs (consumer_no, fingerprint, message_id);

CREATE TABLE IF NOT EXISTS dead_groups (
    consumer_no INTEGER NOT NULL,
    fingerprint INTEGER NOT NULL,
    jobs        INTEGER NOT NULL,
    first_ms    INTEGER NOT NULL,
    last_ms     INTEGER NOT NULL,
    status_code INTEGER NOT NULL,
    sample      BLOB    NOT NULL,
    sample_id   BLOB    NOT NULL,
    PRIMARY KEY (consumer_no, fingerprint)
) WITHOUT ROWID;

INSERT INTO dead_groups (consumer_no, fingerprint, jobs, first_ms, last_ms, status_code, sample, sample_id)
SELECT consumer_no, 0, COUNT(*), MIN(died_ms), MAX(died_ms), 0, x'', MAX(message_id)
FROM dead_jobs
WHERE disposal <> 2
GROUP BY consumer_no;

-- Redrives of selected dead letters of a consumer. cursor_id is the progress: each letter up to it that
-- was meant is open again, and redriven counts them. busy is 1 while a broker has something to do for it.
-- replay_no is the replay with the letters, of a redrive to another consumer. See durable/redriving.go.
CREATE TABLE IF NOT EXISTS redrivings (
    consumer_no     INTEGER NOT NULL,
    no              INTEGER NOT NULL,
    busy            INTEGER NOT NULL,
    state           INTEGER NOT NULL,
    has_fingerprint INTEGER NOT NULL,
    fingerprint     INTEGER NOT NULL,
    reasons         INTEGER NOT NULL,
    from_ms         INTEGER NOT NULL,
    to_ms           INTEGER NOT NULL,
    most            INTEGER NOT NULL,
    picked          INTEGER NOT NULL,
    rate            BLOB    NOT NULL,
    canary          INTEGER NOT NULL,
    target_no       INTEGER NOT NULL,
    replay_no       INTEGER NOT NULL,
    created_ms      INTEGER NOT NULL,
    state_ms        INTEGER NOT NULL,
    reason          BLOB    NOT NULL,
    matched         INTEGER NOT NULL,
    approximate     INTEGER NOT NULL,
    cursor_id       BLOB    NOT NULL,
    redriven        INTEGER NOT NULL,
    delivered       INTEGER NOT NULL,
    dead            INTEGER NOT NULL,
    stage           INTEGER NOT NULL,
    stage_ms        INTEGER NOT NULL,
    stage_jobs      INTEGER NOT NULL,
    stage_over      INTEGER NOT NULL,
    stage_again     INTEGER NOT NULL,
    PRIMARY KEY (consumer_no, no)
) WITHOUT ROWID;

CREATE INDEX IF NOT EXISTS redrivings_busy ON redrivings (busy, consumer_no, no);

-- The jobs of a redrive: with moved_ms 0 those that it is still to open, where it was asked for single
-- ones; else those that it has opened and that are not over. fingerprint is that of the letter.
CREATE TABLE IF NOT EXISTS redriving_jobs (
    consumer_no INTEGER NOT NULL,
    no          INTEGER NOT NULL,
    message_id  BLOB    NOT NULL,
    moved_ms    INTEGER NOT NULL,
    stage       INTEGER NOT NULL,
    fingerprint INTEGER NOT NULL,
    PRIMARY KEY (consumer_no, no, message_id)
) WITHOUT ROWID;

-- A replay of the letters of a redrive to another consumer: redrive_no of the consumer source_no.
ALTER TABLE replays ADD COLUMN source_no INTEGER NOT NULL DEFAULT 0;

ALTER TABLE replays ADD COLUMN redrive_no INTEGER NOT NULL DEFAULT 0;
