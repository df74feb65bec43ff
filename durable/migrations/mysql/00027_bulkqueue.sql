-- Bulks are claimed a producer at a time, so that one with many of them holds back no other. The index
-- has the bulks of a producer that have the same kind of work together, the longest due first. As in
-- 00002, the change may run again.
-- +goose NO TRANSACTION
-- +goose Up
SET @penstock_ddl = (
    SELECT IF(
        COUNT(*) = 0,
        'CREATE INDEX bulks_work ON bulks (state, paused, producer_no, next_ms, id)',
        'DO 0'
    )
    FROM information_schema.statistics
    WHERE table_schema = DATABASE()
      AND table_name = 'bulks'
      AND index_name = 'bulks_work'
);

PREPARE penstock_ddl FROM @penstock_ddl;

EXECUTE penstock_ddl;

DEALLOCATE PREPARE penstock_ddl;
