-- Groups of channels, as the other resources of the catalogue: a deleted one keeps its row. A channel
-- names its group, '' for none. channels.paused is 0 while the channel accepts messages; otherwise 1 is
-- for a pause of the channel, and 2 for one of its group.
-- +goose Up
CREATE TABLE IF NOT EXISTS channel_groups (
    no           INTEGER NOT NULL,
    id           BLOB    NOT NULL,
    name         TEXT    NOT NULL,
    max_channels INTEGER NOT NULL DEFAULT 0,
    paused       INTEGER NOT NULL DEFAULT 0,
    settings     BLOB    NOT NULL DEFAULT x'',
    changed_ms   INTEGER NOT NULL,
    version      INTEGER NOT NULL,
    deleted_no   INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (no)
) WITHOUT ROWID;

CREATE UNIQUE INDEX IF NOT EXISTS channel_groups_present ON channel_groups (id, deleted_no);
CREATE INDEX IF NOT EXISTS channel_groups_version ON channel_groups (version);

ALTER TABLE channels ADD COLUMN group_id BLOB NOT NULL DEFAULT x'';

CREATE INDEX IF NOT EXISTS channels_group ON channels (group_id);
