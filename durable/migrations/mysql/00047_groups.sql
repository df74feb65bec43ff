-- Groups of channels, as the other resources of the catalogue: a deleted one keeps its row. A channel
-- names its group, '' for none. channels.paused is 0 while the channel accepts messages; otherwise 1 is
-- for a pause of the channel, and 2 for one of its group. As in 00002, each change may run again.
-- +goose NO TRANSACTION
-- +goose Up
CREATE TABLE IF NOT EXISTS channel_groups (
    no           INT UNSIGNED     NOT NULL,
    id           VARBINARY(255)   NOT NULL,
    name         VARCHAR(255)     NOT NULL,
    max_channels INT UNSIGNED     NOT NULL DEFAULT 0,
    paused       TINYINT UNSIGNED NOT NULL DEFAULT 0,
    settings     VARBINARY(4096)  NOT NULL DEFAULT '',
    changed_ms   BIGINT           NOT NULL,
    version      BIGINT           NOT NULL,
    deleted_no   INT UNSIGNED     NOT NULL DEFAULT 0,
    PRIMARY KEY (no),
    UNIQUE KEY channel_groups_present (id, deleted_no),
    KEY channel_groups_version (version)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

SET @penstock_ddl = (
    SELECT IF(
        COUNT(*) = 0,
        'ALTER TABLE channels ADD COLUMN group_id VARBINARY(255) NOT NULL DEFAULT '''', ADD KEY channels_group (group_id)',
        'DO 0'
    )
    FROM information_schema.columns
    WHERE table_schema = DATABASE()
      AND table_name = 'channels'
      AND column_name = 'group_id'
);

PREPARE penstock_ddl FROM @penstock_ddl;

EXECUTE penstock_ddl;

DEALLOCATE PREPARE penstock_ddl;
