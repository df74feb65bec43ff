-- The reason of a death, what became of a dead letter, and the life of messages and of
-- redriven jobs. ttl_ms is the time to live that a message has itself, 0 none; expiring has
-- one row for each such message until its jobs are over. redriven_ms is when an open job was
-- dead last, and redrives counts how often the broker itself has redriven it. As in 00002,
-- each change may run again.
-- +goose NO TRANSACTION
-- +goose Up
SET @penstock_ddl = (
    SELECT IF(
        COUNT(*) = 0,
        'ALTER TABLE dead_jobs ADD COLUMN reason_code TINYINT UNSIGNED NOT NULL DEFAULT 0, ADD COLUMN redrives SMALLINT UNSIGNED NOT NULL DEFAULT 0, ADD COLUMN disposal TINYINT UNSIGNED NOT NULL DEFAULT 0',
        'DO 0'
    )
    FROM information_schema.columns
    WHERE table_schema = DATABASE()
      AND table_name = 'dead_jobs'
      AND column_name = 'disposal'
);

PREPARE penstock_ddl FROM @penstock_ddl;

EXECUTE penstock_ddl;

DEALLOCATE PREPARE penstock_ddl;

SET @penstock_ddl = (
    SELECT IF(
        COUNT(*) = 0,
        'ALTER TABLE open_jobs ADD COLUMN redriven_ms BIGINT NOT NULL DEFAULT 0, ADD COLUMN redrives SMALLINT UNSIGNED NOT NULL DEFAULT 0',
        'DO 0'
    )
    FROM information_schema.columns
    WHERE table_schema = DATABASE()
      AND table_name = 'open_jobs'
      AND column_name = 'redrives'
);

PREPARE penstock_ddl FROM @penstock_ddl;

EXECUTE penstock_ddl;

DEALLOCATE PREPARE penstock_ddl;

SET @penstock_ddl = (
    SELECT IF(
        COUNT(*) = 0,
        'ALTER TABLE messages ADD COLUMN ttl_ms BIGINT NOT NULL DEFAULT 0',
        'DO 0'
    )
    FROM information_schema.columns
    WHERE table_schema = DATABASE()
      AND table_name = 'messages'
      AND column_name = 'ttl_ms'
);

PREPARE penstock_ddl FROM @penstock_ddl;

EXECUTE penstock_ddl;

DEALLOCATE PREPARE penstock_ddl;

CREATE TABLE IF NOT EXISTS expiring (
    expires_ms BIGINT       NOT NULL,
    channel_no INT UNSIGNED NOT NULL,
    id         BINARY(12)   NOT NULL,
    PRIMARY KEY (expires_ms, channel_no, id)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;
