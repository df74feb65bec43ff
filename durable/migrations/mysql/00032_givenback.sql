-- How often pull workers gave a job back since it was stored or redriven, without an attempt. The
-- attempts have a row for each time. As in 00002, the change may run again.
-- +goose NO TRANSACTION
-- +goose Up
SET @penstock_ddl = (
    SELECT IF(
        COUNT(*) = 0,
        'ALTER TABLE open_jobs ADD COLUMN given_back INT UNSIGNED NOT NULL DEFAULT 0',
        'DO 0'
    )
    FROM information_schema.columns
    WHERE table_schema = DATABASE()
      AND table_name = 'open_jobs'
      AND column_name = 'given_back'
);

PREPARE penstock_ddl FROM @penstock_ddl;

EXECUTE penstock_ddl;

DEALLOCATE PREPARE penstock_ddl;
