-- Deleted producers, channels and consumers keep their rows, so that their numbers are never
-- given away again. deleted_no is 0 while the resource exists, and then its number, which frees
-- its ID for another row. A consumer has no job of a message after until_id. least_version is
-- the version of the catalogue that the broker with the number must know to insert a message.
-- As in 00002, each change may run again.
-- +goose NO TRANSACTION
-- +goose Up
SET @penstock_ddl = (
    SELECT IF(
        COUNT(*) = 0,
        'ALTER TABLE producers ADD COLUMN deleted_no INT UNSIGNED NOT NULL DEFAULT 0, DROP KEY producers_id, ADD UNIQUE KEY producers_present (id, deleted_no)',
        'DO 0'
    )
    FROM information_schema.columns
    WHERE table_schema = DATABASE()
      AND table_name = 'producers'
      AND column_name = 'deleted_no'
);

PREPARE penstock_ddl FROM @penstock_ddl;

EXECUTE penstock_ddl;

DEALLOCATE PREPARE penstock_ddl;

SET @penstock_ddl = (
    SELECT IF(
        COUNT(*) = 0,
        'ALTER TABLE channels ADD COLUMN deleted_no INT UNSIGNED NOT NULL DEFAULT 0, DROP KEY channels_id, ADD UNIQUE KEY channels_present (id, deleted_no)',
        'DO 0'
    )
    FROM information_schema.columns
    WHERE table_schema = DATABASE()
      AND table_name = 'channels'
      AND column_name = 'deleted_no'
);

PREPARE penstock_ddl FROM @penstock_ddl;

EXECUTE penstock_ddl;

DEALLOCATE PREPARE penstock_ddl;

SET @penstock_ddl = (
    SELECT IF(
        COUNT(*) = 0,
        'ALTER TABLE consumers ADD COLUMN deleted_no INT UNSIGNED NOT NULL DEFAULT 0, ADD COLUMN until_id BINARY(12) NULL, DROP KEY consumers_id, ADD UNIQUE KEY consumers_present (channel_no, id, deleted_no)',
        'DO 0'
    )
    FROM information_schema.columns
    WHERE table_schema = DATABASE()
      AND table_name = 'consumers'
      AND column_name = 'deleted_no'
);

PREPARE penstock_ddl FROM @penstock_ddl;

EXECUTE penstock_ddl;

DEALLOCATE PREPARE penstock_ddl;

SET @penstock_ddl = (
    SELECT IF(
        COUNT(*) = 0,
        'ALTER TABLE nodes ADD COLUMN least_version BIGINT NOT NULL DEFAULT 0',
        'DO 0'
    )
    FROM information_schema.columns
    WHERE table_schema = DATABASE()
      AND table_name = 'nodes'
      AND column_name = 'least_version'
);

PREPARE penstock_ddl FROM @penstock_ddl;

EXECUTE penstock_ddl;

DEALLOCATE PREPARE penstock_ddl;
