-- API tokens: a digest of each, never the token. version is that of the catalogue when it was made. See
-- durable/apitoken.go. And the token that a resource had before a rotation, which is right until a time.
-- +goose Up
CREATE TABLE IF NOT EXISTS api_tokens (
    id         BLOB    NOT NULL,
    name       TEXT    NOT NULL,
    scopes     BLOB    NOT NULL,
    digest     BLOB    NOT NULL,
    key_id     BLOB    NOT NULL,
    created_ms INTEGER NOT NULL,
    expires_ms INTEGER NOT NULL,
    used_ms    INTEGER NOT NULL,
    version    INTEGER NOT NULL,
    PRIMARY KEY (id)
) WITHOUT ROWID;

ALTER TABLE producers ADD COLUMN former_token BLOB NOT NULL DEFAULT '';

ALTER TABLE producers ADD COLUMN former_until_ms INTEGER NOT NULL DEFAULT 0;

ALTER TABLE channels ADD COLUMN former_token BLOB NOT NULL DEFAULT '';

ALTER TABLE channels ADD COLUMN former_until_ms INTEGER NOT NULL DEFAULT 0;

ALTER TABLE consumers ADD COLUMN former_token BLOB NOT NULL DEFAULT '';

ALTER TABLE consumers ADD COLUMN former_until_ms INTEGER NOT NULL DEFAULT 0;
