-- What a producer wants to get back: a record of package policy, NULL where it sets nothing.
-- exchanges has a row for each job whose consumer has responses on, from its outcome on. due_ms is
-- when a broker has to do something about the row: the result is polled, the response is published
-- to the sender, or its body is dropped. It is the largest number where nothing is left to do.
-- +goose NO TRANSACTION
-- +goose Up
SET @penstock_ddl = (
    SELECT IF(
        COUNT(*) = 0,
        'ALTER TABLE producers ADD COLUMN settings VARBINARY(4096) NULL',
        'DO 0'
    )
    FROM information_schema.columns
    WHERE table_schema = DATABASE()
      AND table_name = 'producers'
      AND column_name = 'settings'
);

PREPARE penstock_ddl FROM @penstock_ddl;

EXECUTE penstock_ddl;

DEALLOCATE PREPARE penstock_ddl;

CREATE TABLE IF NOT EXISTS exchanges (
    consumer_no  INT UNSIGNED      NOT NULL,
    message_id   BINARY(12)        NOT NULL,
    state        TINYINT UNSIGNED  NOT NULL,
    goes_back    TINYINT UNSIGNED  NOT NULL,
    attempt      INT UNSIGNED      NOT NULL,
    status_code  SMALLINT UNSIGNED NOT NULL,
    truncated    TINYINT UNSIGNED  NOT NULL,
    delivered_ms BIGINT            NOT NULL,
    received_ms  BIGINT            NOT NULL,
    ended_ms     BIGINT            NOT NULL,
    deadline_ms  BIGINT            NOT NULL,
    keep_ms      BIGINT            NOT NULL,
    due_ms       BIGINT            NOT NULL,
    tries        INT UNSIGNED      NOT NULL,
    url          VARBINARY(2048)   NOT NULL,
    reason       VARBINARY(1024)   NOT NULL,
    headers      BLOB              NOT NULL,
    body         MEDIUMBLOB        NOT NULL,
    PRIMARY KEY (consumer_no, message_id),
    KEY exchanges_due (consumer_no, due_ms)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;
