-- Tokens, secrets and credentials may be sealed (package atrest), which makes them longer: MySQL has wider columns
-- from this version on, and those of SQLite have no width. A broker that cannot read sealed ones does not start.
-- +goose Up
SELECT 1;
