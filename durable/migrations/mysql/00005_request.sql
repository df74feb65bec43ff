-- How far a failed attempt came. A policy may contain headers, credentials and URLs.
-- A producer may sign what it publishes. Every
-- statement may run again.
-- +goose NO TRANSACTION
-- +goose Up
ALTER TABLE consumers MODIFY COLUMN policy VARBINARY(16384) NOT NULL DEFAULT '';

SET @penstock_ddl = (
    SELECT IF(
        COUNT(*) = 0,
        'ALTER TABLE attempts ADD COLUMN phase TINYINT UNSIGNED NOT NULL DEFAULT 0',
        'DO 0'
    )
    FROM information_schema.columns
    WHERE table_schema = DATABASE()
      AND table_name = 'attempts'
      AND column_name = 'phase'
);

PREPARE penstock_ddl FROM @penstock_ddl;

EXECUTE penstock_ddl;

DEALLOCATE PREPARE penstock_ddl;

SET @penstock_ddl = (
    SELECT IF(
        COUNT(*) = 0,
        'ALTER TABLE producers ADD COLUMN publish_secret VARBINARY(255) NOT NULL DEFAULT ''''',
        'DO 0'
    )
    FROM information_schema.columns
    WHERE table_schema = DATABASE()
      AND table_name = 'producers'
      AND column_name = 'publish_secret'
);

PREPARE penstock_ddl FROM @penstock_ddl;

EXECUTE penstock_ddl;

DEALLOCATE PREPARE penstock_ddl;
