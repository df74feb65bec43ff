-- The cause of a dead letter, a fingerprint of package cause, and how many dead letters of a consumer
-- have it. 0 is the group of those without one of their own, such as the older ones. A row of
-- dead_groups has the number of rows of dead_jobs with its fingerprint that are not removed from the
-- DLQ, and the latest of them; it goes with the last one. See durable/deadgroup.go. As in 00002, the
-- change may run again.
-- +goose NO TRANSACTION
-- +goose Up
SET @penstock_ddl = (
    SELECT IF(
        COUNT(*) = 0,
        'ALTER TABLE dead_jobs ADD COLUMN fingerprint BIGINT NOT NULL DEFAULT 0, ADD KEY dead_jobs_fingerprint (consumer_no, fingerprint, message_id)',
        'DO 0'
    )
    FROM information_schema.columns
    WHERE table_schema = DATABASE()
      AND table_name = 'dead_jobs'
      AND column_name = 'fingerprint'
);

PREPARE penstock_ddl FROM @penstock_ddl;

EXECUTE penstock_ddl;

DEALLOCATE PREPARE penstock_ddl;

CREATE TABLE IF NOT EXISTS dead_groups (
    consumer_no INT UNSIGNED   NOT NULL,
    fingerprint BIGINT         NOT NULL,
    jobs        BIGINT         NOT NULL,
    first_ms    BIGINT         NOT NULL,
    last_ms     BIGINT         NOT NULL,
    status_code SMALLINT       NOT NULL,
    sample      VARBINARY(255) NOT NULL,
    sample_id   BINARY(12)     NOT NULL,
    PRIMARY KEY (consumer_no, fingerprint)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

INSERT IGNORE INTO dead_groups (consumer_no, fingerprint, jobs, first_ms, last_ms, status_code, sample, sample_id)
SELECT consumer_no, 0, COUNT(*), MIN(died_ms), MAX(died_ms), 0, '', MAX(message_id)
FROM dead_jobs
WHERE disposal <> 2
GROUP BY consumer_no;

-- Redrives of selected dead letters of a consumer. cursor_id is the progress: each letter up to it that
-- was meant is open again, and redriven counts them. busy is 1 while a broker has something to do for it.
-- replay_no is the replay with the letters, of a redrive to another consumer. See durable/redriving.go.
CREATE TABLE IF NOT EXISTS redrivings (
    consumer_no     INT UNSIGNED     NOT NULL,
    no              INT UNSIGNED     NOT NULL,
    busy            TINYINT UNSIGNED NOT NULL,
    state           TINYINT UNSIGNED NOT NULL,
    has_fingerprint TINYINT UNSIGNED NOT NULL,
    fingerprint     BIGINT           NOT NULL,
    reasons         BIGINT           NOT NULL,
    from_ms         BIGINT           NOT NULL,
    to_ms           BIGINT           NOT NULL,
    most            BIGINT           NOT NULL,
    picked          TINYINT UNSIGNED NOT NULL,
    rate            VARBINARY(64)    NOT NULL,
    canary          TINYINT UNSIGNED NOT NULL,
    target_no       INT UNSIGNED     NOT NULL,
    replay_no       INT UNSIGNED     NOT NULL,
    created_ms      BIGINT           NOT NULL,
    state_ms        BIGINT           NOT NULL,
    reason          VARBINARY(1024)  NOT NULL,
    matched         BIGINT           NOT NULL,
    approximate     TINYINT UNSIGNED NOT NULL,
    cursor_id       BINARY(12)       NOT NULL,
    redriven        BIGINT           NOT NULL,
    delivered       BIGINT           NOT NULL,
    dead            BIGINT           NOT NULL,
    stage           TINYINT UNSIGNED NOT NULL,
    stage_ms        BIGINT           NOT NULL,
    stage_jobs      BIGINT           NOT NULL,
    stage_over      BIGINT           NOT NULL,
    stage_again     BIGINT           NOT NULL,
    PRIMARY KEY (consumer_no, no),
    KEY redrivings_busy (busy, consumer_no, no)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

-- The jobs of a redrive: with moved_ms 0 those that it is still to open, where it was asked for single
-- ones; else those that it has opened and that are not over. fingerprint is that of the letter.
CREATE TABLE IF NOT EXISTS redriving_jobs (
    consumer_no INT UNSIGNED     NOT NULL,
    no          INT UNSIGNED     NOT NULL,
    message_id  BINARY(12)       NOT NULL,
    moved_ms    BIGINT           NOT NULL,
    stage       TINYINT UNSIGNED NOT NULL,
    fingerprint BIGINT           NOT NULL,
    PRIMARY KEY (consumer_no, no, message_id)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

-- A replay of the letters of a redrive to another consumer: redrive_no of the consumer source_no.
SET @penstock_ddl = (
    SELECT IF(
        COUNT(*) = 0,
        'ALTER TABLE replays ADD COLUMN source_no INT UNSIGNED NOT NULL DEFAULT 0, ADD COLUMN redrive_no INT UNSIGNED NOT NULL DEFAULT 0',
        'DO 0'
    )
    FROM information_schema.columns
    WHERE table_schema = DATABASE()
      AND table_name = 'replays'
      AND column_name = 'source_no'
);

PREPARE penstock_ddl FROM @penstock_ddl;

EXECUTE penstock_ddl;

DEALLOCATE PREPARE penstock_ddl;
