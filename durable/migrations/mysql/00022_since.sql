-- A consumer may be attached as of a time: it then also has a job of each message after since_id
-- that was stored before the consumer was created. The filter of since_policy, its policy at that
-- time, is for these messages. As in 00002, the change may run again.
-- +goose NO TRANSACTION
-- +goose Up
SET @penstock_ddl = (
    SELECT IF(
        COUNT(*) = 0,
        'ALTER TABLE consumers ADD COLUMN since_id BINARY(12) NULL, ADD COLUMN since_policy VARBINARY(16384) NOT NULL DEFAULT ''''',
        'DO 0'
    )
    FROM information_schema.columns
    WHERE table_schema = DATABASE()
      AND table_name = 'consumers'
      AND column_name = 'since_id'
);

PREPARE penstock_ddl FROM @penstock_ddl;

EXECUTE penstock_ddl;

DEALLOCATE PREPARE penstock_ddl;
