-- Whom a message reaches. addressed is the map of the positions that its producer named, NULL for
-- all. left_out is the map of the positions whose filter refused it, NULL for none. Position p is
-- bit 0x80 >> p % 8 of byte p / 8; a position beyond a map is not in it. prioritised repeats both,
-- as it repeats the audience. shape grows when the channel decides in another way whom later
-- messages reach: the guard of the insert compares it.
-- +goose NO TRANSACTION
-- +goose Up
SET @penstock_ddl = (
    SELECT IF(
        COUNT(*) = 0,
        'ALTER TABLE messages ADD COLUMN addressed VARBINARY(8192) NULL',
        'DO 0'
    )
    FROM information_schema.columns
    WHERE table_schema = DATABASE()
      AND table_name = 'messages'
      AND column_name = 'addressed'
);

PREPARE penstock_ddl FROM @penstock_ddl;

EXECUTE penstock_ddl;

DEALLOCATE PREPARE penstock_ddl;

SET @penstock_ddl = (
    SELECT IF(
        COUNT(*) = 0,
        'ALTER TABLE messages ADD COLUMN left_out VARBINARY(8192) NULL',
        'DO 0'
    )
    FROM information_schema.columns
    WHERE table_schema = DATABASE()
      AND table_name = 'messages'
      AND column_name = 'left_out'
);

PREPARE penstock_ddl FROM @penstock_ddl;

EXECUTE penstock_ddl;

DEALLOCATE PREPARE penstock_ddl;

SET @penstock_ddl = (
    SELECT IF(
        COUNT(*) = 0,
        'ALTER TABLE prioritised ADD COLUMN addressed VARBINARY(8192) NULL',
        'DO 0'
    )
    FROM information_schema.columns
    WHERE table_schema = DATABASE()
      AND table_name = 'prioritised'
      AND column_name = 'addressed'
);

PREPARE penstock_ddl FROM @penstock_ddl;

EXECUTE penstock_ddl;

DEALLOCATE PREPARE penstock_ddl;

SET @penstock_ddl = (
    SELECT IF(
        COUNT(*) = 0,
        'ALTER TABLE prioritised ADD COLUMN left_out VARBINARY(8192) NULL',
        'DO 0'
    )
    FROM information_schema.columns
    WHERE table_schema = DATABASE()
      AND table_name = 'prioritised'
      AND column_name = 'left_out'
);

PREPARE penstock_ddl FROM @penstock_ddl;

EXECUTE penstock_ddl;

DEALLOCATE PREPARE penstock_ddl;

SET @penstock_ddl = (
    SELECT IF(
        COUNT(*) = 0,
        'ALTER TABLE scheduled ADD COLUMN addressed VARBINARY(8192) NULL',
        'DO 0'
    )
    FROM information_schema.columns
    WHERE table_schema = DATABASE()
      AND table_name = 'scheduled'
      AND column_name = 'addressed'
);

PREPARE penstock_ddl FROM @penstock_ddl;

EXECUTE penstock_ddl;

DEALLOCATE PREPARE penstock_ddl;

SET @penstock_ddl = (
    SELECT IF(
        COUNT(*) = 0,
        'ALTER TABLE channels ADD COLUMN shape BIGINT NOT NULL DEFAULT 0',
        'DO 0'
    )
    FROM information_schema.columns
    WHERE table_schema = DATABASE()
      AND table_name = 'channels'
      AND column_name = 'shape'
);

PREPARE penstock_ddl FROM @penstock_ddl;

EXECUTE penstock_ddl;

DEALLOCATE PREPARE penstock_ddl;
