-- The audit log: one entry for each change by somebody who manages the broker. Entries are only added. Each has
-- the hash of itself and of the entry before it; the head is the last one, whose lock puts the brokers in a row.
-- deed is the name of the change, so that a transaction which is repeated writes one entry. See durable/audit.go.
-- +goose Up
CREATE TABLE audit (
    no           INTEGER NOT NULL,
    at_ms        INTEGER NOT NULL,
    who          BLOB    NOT NULL,
    from_address BLOB    NOT NULL,
    action       BLOB    NOT NULL,
    resource     BLOB    NOT NULL,
    before_json  BLOB    NOT NULL,
    after_json   BLOB    NOT NULL,
    hash         BLOB    NOT NULL,
    deed         BLOB    NOT NULL,
    PRIMARY KEY (no)
);

CREATE UNIQUE INDEX audit_deed ON audit (deed);

CREATE INDEX audit_time ON audit (at_ms);

CREATE TABLE audit_head (
    one   INTEGER NOT NULL,
    no    INTEGER NOT NULL,
    at_ms INTEGER NOT NULL,
    hash  BLOB    NOT NULL,
    PRIMARY KEY (one)
) WITHOUT ROWID;

INSERT INTO audit_head (one, no, at_ms, hash)
VALUES (1, 0, 0, x'');
