-- awaiting_replies has a row for each response that waits because its producer has no reply URL: the
-- deletion of the producer, and a URL, find what waits for it. schedules are found by their producer.
-- As in 00002, each change may run again.
-- +goose NO TRANSACTION
-- +goose Up
CREATE TABLE IF NOT EXISTS awaiting_replies (
    consumer_no INT UNSIGNED NOT NULL,
    message_id  BINARY(12)   NOT NULL,
    producer_no INT UNSIGNED NOT NULL,
    PRIMARY KEY (consumer_no, message_id),
    KEY awaiting_replies_producer (producer_no, consumer_no, message_id)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

SET @penstock_ddl = (
    SELECT IF(
        COUNT(*) = 0,
        'ALTER TABLE scheduled ADD KEY scheduled_producer (producer_no, status)',
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
