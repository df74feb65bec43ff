-- Secrets that all brokers share, such as the key of receipts: 32 bytes, which may be sealed
-- (durable/vault.go). Before, settings had each of them as four numbers, NAME.0 to NAME.3. They
-- stay there for brokers of the release before, until broker reencrypt removes them. The change may
-- run again after a crash.
-- +goose NO TRANSACTION
-- +goose Up
CREATE TABLE IF NOT EXISTS secrets (
    name   VARBINARY(64)  NOT NULL,
    secret VARBINARY(200) NOT NULL,
    PRIMARY KEY (name)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

INSERT IGNORE INTO secrets (name, secret)
SELECT
    LEFT(a.name, LENGTH(a.name) - 2),
    UNHEX(CONCAT(
        LPAD(HEX(a.value), 16, '0'),
        LPAD(HEX(b.value), 16, '0'),
        LPAD(HEX(c.value), 16, '0'),
        LPAD(HEX(d.value), 16, '0')
    ))
FROM settings AS a
JOIN settings AS b ON b.name = CONCAT(LEFT(a.name, LENGTH(a.name) - 2), '.1')
JOIN settings AS c ON c.name = CONCAT(LEFT(a.name, LENGTH(a.name) - 2), '.2')
JOIN settings AS d ON d.name = CONCAT(LEFT(a.name, LENGTH(a.name) - 2), '.3')
WHERE a.name IN ('journal.0', 'tokens.0', 'audit fingerprints.0', 'revive.0');
