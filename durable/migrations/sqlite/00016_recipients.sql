-- Whom a message reaches. addressed is the map of the positions that its producer named, NULL for
-- all. left_out is the map of the positions whose filter refused it, NULL for none. Position p is
-- bit 0x80 >> p % 8 of byte p / 8; a position beyond a map is not in it. prioritised repeats both,
-- as it repeats the audience. shape grows when the channel decides in another way whom later
-- messages reach: the guard of the insert compares it.
-- +goose Up
ALTER TABLE messages ADD COLUMN addressed BLOB;

ALTER TABLE messages ADD COLUMN left_out BLOB;

ALTER TABLE prioritised ADD COLUMN addressed BLOB;

ALTER TABLE prioritised ADD COLUMN left_out BLOB;

ALTER TABLE scheduled ADD COLUMN addressed BLOB;

ALTER TABLE channels ADD COLUMN shape INTEGER NOT NULL DEFAULT 0;
