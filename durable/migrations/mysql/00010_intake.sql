-- How a channel takes messages in: a record of package policy, empty where it sets nothing.
-- idempotency_keys has the keys of Idempotency-Key, with a digest of the body. They outlive
-- their messages, and end by their age, which their ID tells.
-- +goose NO TRANSACTION
-- +goose Up
SET @penstock_ddl = (
    SELECT IF(
        COUNT(*) = 0,
        'ALTER TABLE channels ADD COLUMN intake VARBINARY(1024) NOT NULL DEFAULT ''''',
        'DO 0'
    )
    FROM information_schema.columns
    WHERE table_schema = DATABASE()
      AND table_name = 'channels'
      AND column_name = 'intake'
);

PREPARE penstock_ddl FROM @penstock_ddl;

EXECUTE penstock_ddl;

DEALLOCATE PREPARE penstock_ddl;

CREATE TABLE IF NOT EXISTS idempotency_keys (
    channel_no  INT UNSIGNED NOT NULL,
    msg_key     BINARY(17)   NOT NULL,
    id          BINARY(12)   NOT NULL,
    fingerprint BINARY(16)   NOT NULL,
    PRIMARY KEY (channel_no, msg_key),
    KEY idempotency_keys_id (id)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;
