-- Deleted producers, channels and consumers keep their rows, so that their numbers are never
-- given away again. deleted_no is 0 while the resource exists, and then its number, which frees
-- its ID for another row. A consumer has no job of a message after until_id. least_version is
-- the version of the catalogue that the broker with the number must know to insert a message.
-- +goose Up
ALTER TABLE producers ADD COLUMN deleted_no INTEGER NOT NULL DEFAULT 0;
ALTER TABLE channels ADD COLUMN deleted_no INTEGER NOT NULL DEFAULT 0;
ALTER TABLE consumers ADD COLUMN deleted_no INTEGER NOT NULL DEFAULT 0;
ALTER TABLE consumers ADD COLUMN until_id BLOB;
ALTER TABLE nodes ADD COLUMN least_version INTEGER NOT NULL DEFAULT 0;

DROP INDEX producers_id;
DROP INDEX channels_id;
DROP INDEX consumers_id;

CREATE UNIQUE INDEX producers_present ON producers (id, deleted_no);
CREATE UNIQUE INDEX channels_present ON channels (id, deleted_no);
CREATE UNIQUE INDEX consumers_present ON consumers (channel_no, id, deleted_no);
