-- Before which time the failed attempts of jobs of a channel that are over were removed, Unix ms; 0: none
-- were. See durable/oldattempts.go. MySQL has no ADD COLUMN IF NOT EXISTS, and the change may run again
-- after a crash.
-- +goose NO TRANSACTION
-- +goose Up
SET @ddl = (
    SELECT IF(
        COUNT(*) = 0,
        'ALTER TABLE kept_channels ADD COLUMN attempts_ms BIGINT NOT NULL DEFAULT 0',
        'DO 0'
    )
    FROM information_schema.columns
    WHERE table_schema = DATABASE()
      AND table_name = 'kept_channels'
      AND column_name = 'attempts_ms'
);

PREPARE ddl FROM @ddl;

EXECUTE ddl;

DEALLOCATE PREPARE ddl;
