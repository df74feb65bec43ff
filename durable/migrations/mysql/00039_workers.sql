-- Leases that ended without a word are counted apart, for the jobs that are open and for dead letters,
-- which also have the count of their give-backs. What ended a job, an attempt or a kept lease has the
-- worker that had it: name;version, empty where it did not say who it is. As in 00002, it may run again.
-- +goose NO TRANSACTION
-- +goose Up
SET @penstock_ddl = (
    SELECT IF(
        COUNT(*) = 0,
        'ALTER TABLE open_jobs ADD COLUMN leases_lost INT UNSIGNED NOT NULL DEFAULT 0',
        'DO 0'
    )
    FROM information_schema.columns
    WHERE table_schema = DATABASE()
      AND table_name = 'open_jobs'
      AND column_name = 'leases_lost'
);

PREPARE penstock_ddl FROM @penstock_ddl;

EXECUTE penstock_ddl;

DEALLOCATE PREPARE penstock_ddl;

SET @penstock_ddl = (
    SELECT IF(
        COUNT(*) = 0,
        'ALTER TABLE dead_jobs ADD COLUMN leases_lost INT UNSIGNED NOT NULL DEFAULT 0, ADD COLUMN given_back INT UNSIGNED NOT NULL DEFAULT 0, ADD COLUMN worker VARBINARY(200) NOT NULL DEFAULT ''''',
        'DO 0'
    )
    FROM information_schema.columns
    WHERE table_schema = DATABASE()
      AND table_name = 'dead_jobs'
      AND column_name = 'leases_lost'
);

PREPARE penstock_ddl FROM @penstock_ddl;

EXECUTE penstock_ddl;

DEALLOCATE PREPARE penstock_ddl;

SET @penstock_ddl = (
    SELECT IF(
        COUNT(*) = 0,
        'ALTER TABLE attempts ADD COLUMN worker VARBINARY(200) NOT NULL DEFAULT ''''',
        'DO 0'
    )
    FROM information_schema.columns
    WHERE table_schema = DATABASE()
      AND table_name = 'attempts'
      AND column_name = 'worker'
);

PREPARE penstock_ddl FROM @penstock_ddl;

EXECUTE penstock_ddl;

DEALLOCATE PREPARE penstock_ddl;

SET @penstock_ddl = (
    SELECT IF(
        COUNT(*) = 0,
        'ALTER TABLE deliveries ADD COLUMN worker VARBINARY(200) NULL',
        'DO 0'
    )
    FROM information_schema.columns
    WHERE table_schema = DATABASE()
      AND table_name = 'deliveries'
      AND column_name = 'worker'
);

PREPARE penstock_ddl FROM @penstock_ddl;

EXECUTE penstock_ddl;

DEALLOCATE PREPARE penstock_ddl;

SET @penstock_ddl = (
    SELECT IF(
        COUNT(*) = 0,
        'ALTER TABLE kept_leases ADD COLUMN worker VARBINARY(200) NOT NULL DEFAULT ''''',
        'DO 0'
    )
    FROM information_schema.columns
    WHERE table_schema = DATABASE()
      AND table_name = 'kept_leases'
      AND column_name = 'worker'
);

PREPARE penstock_ddl FROM @penstock_ddl;

EXECUTE penstock_ddl;

DEALLOCATE PREPARE penstock_ddl;
