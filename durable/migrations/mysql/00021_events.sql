-- What became of a message: which broker made an attempt and how long a successful one took, where
-- it is known; the redrives of dead letters, each with the death that it ended. status_events are
-- events that a producer wants to hear of, until a batch takes them over; status_batches are
-- batches on their way. Every statement may run again.
-- +goose NO TRANSACTION
-- +goose Up
SET @penstock_ddl = (
    SELECT IF(
        COUNT(*) = 0,
        'ALTER TABLE attempts ADD COLUMN node SMALLINT UNSIGNED NULL',
        'DO 0'
    )
    FROM information_schema.columns
    WHERE table_schema = DATABASE()
      AND table_name = 'attempts'
      AND column_name = 'node'
);

PREPARE penstock_ddl FROM @penstock_ddl;

EXECUTE penstock_ddl;

DEALLOCATE PREPARE penstock_ddl;

SET @penstock_ddl = (
    SELECT IF(
        COUNT(*) = 0,
        'ALTER TABLE deliveries ADD COLUMN node SMALLINT UNSIGNED NULL, ADD COLUMN duration_ms INT UNSIGNED NULL',
        'DO 0'
    )
    FROM information_schema.columns
    WHERE table_schema = DATABASE()
      AND table_name = 'deliveries'
      AND column_name = 'node'
);

PREPARE penstock_ddl FROM @penstock_ddl;

EXECUTE penstock_ddl;

DEALLOCATE PREPARE penstock_ddl;

CREATE TABLE IF NOT EXISTS redrives (
    consumer_no INT UNSIGNED     NOT NULL,
    message_id  BINARY(12)       NOT NULL,
    at_ms       BIGINT           NOT NULL,
    how         TINYINT UNSIGNED NOT NULL,
    died_ms     BIGINT           NOT NULL,
    attempts    INT UNSIGNED     NOT NULL,
    status_code SMALLINT         NOT NULL,
    reason_code TINYINT UNSIGNED NOT NULL,
    reason      VARBINARY(1024)  NOT NULL,
    PRIMARY KEY (consumer_no, message_id, at_ms)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

CREATE TABLE IF NOT EXISTS status_events (
    producer_no INT UNSIGNED     NOT NULL,
    event_key   BINARY(24)       NOT NULL,
    attempt     INT UNSIGNED     NOT NULL,
    status_code SMALLINT         NOT NULL,
    reason_code TINYINT UNSIGNED NOT NULL,
    PRIMARY KEY (producer_no, event_key)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

CREATE TABLE IF NOT EXISTS status_batches (
    id          BINARY(12)   NOT NULL,
    producer_no INT UNSIGNED NOT NULL,
    body        LONGBLOB     NOT NULL,
    PRIMARY KEY (id)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;
