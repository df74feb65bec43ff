-- What a consumer sets of its policy: a record of package policy, empty where it sets
-- nothing. MySQL has no ADD COLUMN IF NOT EXISTS, and this may run again after a crash
-- between the change and the note that it was made.
-- +goose NO TRANSACTION
-- +goose Up
SET @penstock_ddl = (
    SELECT IF(
        COUNT(*) = 0,
        'ALTER TABLE consumers ADD COLUMN policy VARBINARY(4096) NOT NULL DEFAULT ''''',
        'DO 0'
    )
    FROM information_schema.columns
    WHERE table_schema = DATABASE()
      AND table_name = 'consumers'
      AND column_name = 'policy'
);

PREPARE penstock_ddl FROM @penstock_ddl;

EXECUTE penstock_ddl;

DEALLOCATE PREPARE penstock_ddl;
