-- Tokens, secrets and credentials may be sealed (package atrest), which makes them longer. Each change may run again.
-- +goose NO TRANSACTION
-- +goose Up
ALTER TABLE producers
    MODIFY COLUMN token VARBINARY(320) NOT NULL,
    MODIFY COLUMN former_token VARBINARY(320) NOT NULL DEFAULT '',
    MODIFY COLUMN publish_secret VARBINARY(320) NOT NULL DEFAULT '',
    MODIFY COLUMN settings VARBINARY(4200) NULL;

ALTER TABLE channels
    MODIFY COLUMN token VARBINARY(320) NOT NULL,
    MODIFY COLUMN former_token VARBINARY(320) NOT NULL DEFAULT '';

ALTER TABLE consumers
    MODIFY COLUMN token VARBINARY(320) NOT NULL,
    MODIFY COLUMN former_token VARBINARY(320) NOT NULL DEFAULT '',
    MODIFY COLUMN policy VARBINARY(16500) NOT NULL DEFAULT '',
    MODIFY COLUMN since_policy VARBINARY(16500) NOT NULL DEFAULT '';

ALTER TABLE sqs_keys
    MODIFY COLUMN secret VARBINARY(200) NOT NULL;
