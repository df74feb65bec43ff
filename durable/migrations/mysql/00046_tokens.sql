-- API tokens: a digest of each, never the token. version is that of the catalogue when it was made. See
-- durable/apitoken.go. And the token that a resource had before a rotation, which is right until a time. As in
-- 00002, the change may run again.
-- +goose NO TRANSACTION
-- +goose Up
CREATE TABLE IF NOT EXISTS api_tokens (
    id         VARBINARY(16)    NOT NULL,
    name       VARCHAR(255)     NOT NULL,
    scopes     VARBINARY(12000) NOT NULL,
    digest     BINARY(32)       NOT NULL,
    key_id     VARBINARY(16)    NOT NULL,
    created_ms BIGINT           NOT NULL,
    expires_ms BIGINT           NOT NULL,
    used_ms    BIGINT           NOT NULL,
    version    BIGINT           NOT NULL,
    PRIMARY KEY (id)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

SET @penstock_ddl = (
    SELECT IF(
        COUNT(*) = 0,
        'ALTER TABLE producers ADD COLUMN former_token VARBINARY(255) NOT NULL DEFAULT '''', ADD COLUMN former_until_ms BIGINT NOT NULL DEFAULT 0',
        'DO 0'
    )
    FROM information_schema.columns
    WHERE table_schema = DATABASE()
      AND table_name = 'producers'
      AND column_name = 'former_token'
);

PREPARE penstock_ddl FROM @penstock_ddl;

EXECUTE penstock_ddl;

DEALLOCATE PREPARE penstock_ddl;

SET @penstock_ddl = (
    SELECT IF(
        COUNT(*) = 0,
        'ALTER TABLE channels ADD COLUMN former_token VARBINARY(255) NOT NULL DEFAULT '''', ADD COLUMN former_until_ms BIGINT NOT NULL DEFAULT 0',
        'DO 0'
    )
    FROM information_schema.columns
    WHERE table_schema = DATABASE()
      AND table_name = 'channels'
      AND column_name = 'former_token'
);

PREPARE penstock_ddl FROM @penstock_ddl;

EXECUTE penstock_ddl;

DEALLOCATE PREPARE penstock_ddl;

SET @penstock_ddl = (
    SELECT IF(
        COUNT(*) = 0,
        'ALTER TABLE consumers ADD COLUMN former_token VARBINARY(255) NOT NULL DEFAULT '''', ADD COLUMN former_until_ms BIGINT NOT NULL DEFAULT 0',
        'DO 0'
    )
    FROM information_schema.columns
    WHERE table_schema = DATABASE()
      AND table_name = 'consumers'
      AND column_name = 'former_token'
);

PREPARE penstock_ddl FROM @penstock_ddl;

EXECUTE penstock_ddl;

DEALLOCATE PREPARE penstock_ddl;
