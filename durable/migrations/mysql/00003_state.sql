-- Whether jobs of a consumer are delivered and messages of a channel accepted, and the
-- failures that count for a tombstone. Every statement may run again; MySQL has no ADD
-- COLUMN IF NOT EXISTS.
-- +goose NO TRANSACTION
-- +goose Up
SET @penstock_ddl = (
    SELECT IF(
        COUNT(*) = 0,
        'ALTER TABLE consumers ADD COLUMN state TINYINT UNSIGNED NOT NULL DEFAULT 0, ADD COLUMN state_reason VARBINARY(512) NOT NULL DEFAULT '''', ADD COLUMN state_ms BIGINT NOT NULL DEFAULT 0, ADD COLUMN failures_ms BIGINT NOT NULL DEFAULT 0, ADD COLUMN probe_ms BIGINT NOT NULL DEFAULT 0',
        'DO 0'
    )
    FROM information_schema.columns
    WHERE table_schema = DATABASE()
      AND table_name = 'consumers'
      AND column_name = 'state'
);

PREPARE penstock_ddl FROM @penstock_ddl;

EXECUTE penstock_ddl;

DEALLOCATE PREPARE penstock_ddl;

UPDATE consumers
SET state_ms = changed_ms
WHERE state_ms = 0;

SET @penstock_ddl = (
    SELECT IF(
        COUNT(*) = 0,
        'ALTER TABLE channels ADD COLUMN paused TINYINT UNSIGNED NOT NULL DEFAULT 0',
        'DO 0'
    )
    FROM information_schema.columns
    WHERE table_schema = DATABASE()
      AND table_name = 'channels'
      AND column_name = 'paused'
);

PREPARE penstock_ddl FROM @penstock_ddl;

EXECUTE penstock_ddl;

DEALLOCATE PREPARE penstock_ddl;

CREATE TABLE IF NOT EXISTS failures (
    consumer_no INT UNSIGNED NOT NULL,
    times       MEDIUMBLOB   NOT NULL,
    PRIMARY KEY (consumer_no)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;
