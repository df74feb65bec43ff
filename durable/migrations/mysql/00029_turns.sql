-- Schedules that are due are sent in turns of producers and channels. The index that finds those of a
-- producer is replaced by one that finds those of each of its channels, too. As in 00002, it may run
-- again.
-- +goose NO TRANSACTION
-- +goose Up
SET @penstock_ddl = (
    SELECT IF(
        COUNT(*) = 0,
        'ALTER TABLE scheduled ADD KEY scheduled_turns (status, producer_no, channel_no, due_ms)',
        'DO 0'
    )
    FROM information_schema.statistics
    WHERE table_schema = DATABASE()
      AND table_name = 'scheduled'
      AND index_name = 'scheduled_turns'
);

PREPARE penstock_ddl FROM @penstock_ddl;

EXECUTE penstock_ddl;

DEALLOCATE PREPARE penstock_ddl;

SET @penstock_ddl = (
    SELECT IF(
        COUNT(*) > 0,
        'ALTER TABLE scheduled DROP KEY scheduled_producer',
        'DO 0'
    )
    FROM information_schema.statistics
    WHERE table_schema = DATABASE()
      AND table_name = 'scheduled'
      AND index_name = 'scheduled_producer'
);

PREPARE penstock_ddl FROM @penstock_ddl;

EXECUTE penstock_ddl;

DEALLOCATE PREPARE penstock_ddl;
