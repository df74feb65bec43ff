-- A schedule may be asked for by a delay, which a repeat compares instead of the time, and may be
-- changed. delay_ms is the delay, 0 for a time. changed_ms is when it was changed last, 0 for never;
-- it grows with each change, so the insert of its message compares it. sent_before is the number of
-- the messages of recurrences that it had before: the IDs of its messages go on from there. As in
-- 00002, the change may run again.
-- +goose NO TRANSACTION
-- +goose Up
SET @penstock_ddl = (
    SELECT IF(
        COUNT(*) = 0,
        'ALTER TABLE scheduled ADD COLUMN delay_ms BIGINT NOT NULL DEFAULT 0, ADD COLUMN changed_ms BIGINT NOT NULL DEFAULT 0, ADD COLUMN sent_before BIGINT NOT NULL DEFAULT 0',
        'DO 0'
    )
    FROM information_schema.columns
    WHERE table_schema = DATABASE()
      AND table_name = 'scheduled'
      AND column_name = 'delay_ms'
);

PREPARE penstock_ddl FROM @penstock_ddl;

EXECUTE penstock_ddl;

DEALLOCATE PREPARE penstock_ddl;
