-- A digest of the terms of the message that has an Idempotency-Key: addressees, time to live and
-- ordering key. NULL where the broker that stored the key did not know terms.
-- +goose Up
ALTER TABLE idempotency_keys ADD COLUMN terms BLOB;
