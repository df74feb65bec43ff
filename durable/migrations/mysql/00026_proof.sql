-- A row is written so that its commit, which a second server confirms, proves what was committed
-- before it. See durable/proof.go.
-- +goose NO TRANSACTION
-- +goose Up
CREATE TABLE IF NOT EXISTS proofs (
    no     SMALLINT UNSIGNED NOT NULL PRIMARY KEY,
    writes BIGINT UNSIGNED   NOT NULL
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;
