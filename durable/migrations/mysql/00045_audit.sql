-- The audit log: one entry for each change by somebody who manages the broker. Entries are only added. Each has
-- the hash of itself and of the entry before it; the head is the last one, whose lock puts the brokers in a row.
-- deed is the name of the change, so that a transaction which is repeated writes one entry. See durable/audit.go.
-- As in 00002, the change may run again.
-- +goose NO TRANSACTION
-- +goose Up
CREATE TABLE IF NOT EXISTS audit (
    no           BIGINT UNSIGNED NOT NULL,
    at_ms        BIGINT          NOT NULL,
    who          VARBINARY(1024) NOT NULL,
    from_address VARBINARY(255)  NOT NULL,
    action       VARBINARY(64)   NOT NULL,
    resource     VARBINARY(2048) NOT NULL,
    before_json  MEDIUMBLOB      NOT NULL,
    after_json   MEDIUMBLOB      NOT NULL,
    hash         BINARY(32)      NOT NULL,
    deed         BINARY(16)      NOT NULL,
    PRIMARY KEY (no),
    UNIQUE KEY audit_deed (deed),
    KEY audit_time (at_ms)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

CREATE TABLE IF NOT EXISTS audit_head (
    one   TINYINT UNSIGNED NOT NULL,
    no    BIGINT UNSIGNED  NOT NULL,
    at_ms BIGINT           NOT NULL,
    hash  VARBINARY(32)    NOT NULL,
    PRIMARY KEY (one)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

INSERT INTO audit_head (one, no, at_ms, hash)
VALUES (1, 0, 0, '')
ON DUPLICATE KEY UPDATE one = one;
