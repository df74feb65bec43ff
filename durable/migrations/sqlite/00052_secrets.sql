-- Secrets that all brokers share, such as the key of receipts: 32 bytes, which may be sealed
-- (durable/vault.go). Before, settings had each of them as four numbers, NAME.0 to NAME.3. They
-- stay there until broker reencrypt removes them.
-- +goose Up
CREATE TABLE IF NOT EXISTS secrets (
    name   BLOB NOT NULL,
    secret BLOB NOT NULL,
    PRIMARY KEY (name)
) WITHOUT ROWID;

-- The names of these settings are blobs in their column of text.
WITH parts AS (
    SELECT
        SUBSTR(CAST(name AS TEXT), 1, LENGTH(CAST(name AS TEXT)) - 2) AS secret,
        SUBSTR(CAST(name AS TEXT), -2) AS part,
        value
    FROM settings
)

INSERT INTO secrets (name, secret)
SELECT
    CAST(a.secret AS BLOB),
    UNHEX(PRINTF('%016X%016X%016X%016X', a.value, b.value, c.value, d.value))
FROM parts AS a
JOIN parts AS b ON b.secret = a.secret AND b.part = '.1'
JOIN parts AS c ON c.secret = a.secret AND c.part = '.2'
JOIN parts AS d ON d.secret = a.secret AND d.part = '.3'
WHERE a.part = '.0'
  AND a.secret IN ('journal', 'tokens', 'audit fingerprints', 'revive');
