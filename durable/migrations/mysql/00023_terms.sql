-- A digest of the terms of the message that has an Idempotency-Key: addressees, time to live and
-- ordering key. NULL where the broker that stored the key did not know terms. As in 00002, the change may run again.
-- +goose NO TRANSACTION
-- +goose Up
SET @penstock_ddl = (
    SELECT IF(
        COUNT(*) = 0,
        'ALTER TABLE idempotency_keys ADD COLUMN terms VARBINARY(16) NULL',
        'DO 0'
    )
    FROM information_schema.columns
    WHERE table_schema = DATABASE()
      AND table_name = 'idempotency_keys'
      AND column_name = 'terms'
);

PREPARE penstock_ddl FROM @penstock_ddl;

EXECUTE penstock_ddl;

DEALLOCATE PREPARE penstock_ddl;
