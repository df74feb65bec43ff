-- Tables of the broker for MySQL 8 and MariaDB 10.6 or newer. Identifiers,
-- tokens and keys are bytes (VARBINARY), times are Unix milliseconds. No foreign
-- keys and no AUTO_INCREMENT: numbers come from the broker, which allows
-- partitioned and sharded servers. Every statement may run again.
-- +goose NO TRANSACTION
-- +goose Up
CREATE TABLE IF NOT EXISTS settings (
    name  VARBINARY(64) NOT NULL,
    value BIGINT        NOT NULL,
    PRIMARY KEY (name)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

INSERT INTO settings (name, value)
VALUES ('catalogue', 0), ('nodes', 0)
ON DUPLICATE KEY UPDATE value = value;

CREATE TABLE IF NOT EXISTS producers (
    no         INT UNSIGNED   NOT NULL,
    id         VARBINARY(255) NOT NULL,
    name       VARCHAR(255)   NOT NULL,
    token      VARBINARY(255) NOT NULL,
    changed_ms BIGINT         NOT NULL,
    version    BIGINT         NOT NULL,
    PRIMARY KEY (no),
    UNIQUE KEY producers_id (id),
    KEY producers_version (version)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

CREATE TABLE IF NOT EXISTS channels (
    no         INT UNSIGNED      NOT NULL,
    id         VARBINARY(255)    NOT NULL,
    name       VARCHAR(255)      NOT NULL,
    token      VARBINARY(255)    NOT NULL,
    audience   SMALLINT UNSIGNED NOT NULL,
    changed_ms BIGINT            NOT NULL,
    version    BIGINT            NOT NULL,
    PRIMARY KEY (no),
    UNIQUE KEY channels_id (id),
    KEY channels_version (version)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

CREATE TABLE IF NOT EXISTS consumers (
    no           INT UNSIGNED      NOT NULL,
    channel_no   INT UNSIGNED      NOT NULL,
    position     SMALLINT UNSIGNED NOT NULL,
    id           VARBINARY(255)    NOT NULL,
    name         VARCHAR(255)      NOT NULL,
    token        VARBINARY(255)    NOT NULL,
    callback_url VARBINARY(4096)   NOT NULL,
    type         TINYINT UNSIGNED  NOT NULL,
    protocol     VARBINARY(16)     NOT NULL,
    changed_ms   BIGINT            NOT NULL,
    version      BIGINT            NOT NULL,
    PRIMARY KEY (no),
    UNIQUE KEY consumers_id (channel_no, id),
    UNIQUE KEY consumers_position (channel_no, position),
    KEY consumers_version (version),
    CONSTRAINT consumers_callback CHECK (type <> 0 OR callback_url <> '')
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

CREATE TABLE IF NOT EXISTS nodes (
    no         SMALLINT UNSIGNED NOT NULL,
    name       VARCHAR(255)      NOT NULL,
    token      BINARY(16)        NOT NULL,
    expires_ms BIGINT            NOT NULL,
    PRIMARY KEY (no)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

-- audience is NOT NULL on purpose: the guard of an insert makes it NULL when the
-- batch is stale, and that refuses the whole statement.
CREATE TABLE IF NOT EXISTS messages (
    channel_no   INT UNSIGNED      NOT NULL,
    id           BINARY(12)        NOT NULL,
    producer_no  INT UNSIGNED      NOT NULL,
    priority     SMALLINT UNSIGNED NOT NULL,
    audience     SMALLINT UNSIGNED NOT NULL,
    msg_key      VARBINARY(255)    NOT NULL DEFAULT '',
    content_type VARBINARY(255)    NOT NULL,
    headers      BLOB              NOT NULL,
    payload      LONGBLOB          NOT NULL,
    PRIMARY KEY (channel_no, id),
    CONSTRAINT messages_priority CHECK (priority <= 1023)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin ROW_FORMAT = DYNAMIC;

CREATE TABLE IF NOT EXISTS message_keys (
    channel_no INT UNSIGNED   NOT NULL,
    msg_key    VARBINARY(255) NOT NULL,
    id         BINARY(12)     NOT NULL,
    PRIMARY KEY (channel_no, msg_key)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

-- inv_priority is 1023 - priority: the key order is the order of delivery.
CREATE TABLE IF NOT EXISTS prioritised (
    channel_no   INT UNSIGNED      NOT NULL,
    inv_priority SMALLINT UNSIGNED NOT NULL,
    id           BINARY(12)        NOT NULL,
    audience     SMALLINT UNSIGNED NOT NULL,
    PRIMARY KEY (channel_no, inv_priority, id)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

CREATE TABLE IF NOT EXISTS deliveries (
    consumer_no INT UNSIGNED NOT NULL,
    message_id  BINARY(12)   NOT NULL,
    attempts    INT UNSIGNED NOT NULL,
    at_ms       BIGINT       NOT NULL,
    status_code SMALLINT     NOT NULL,
    PRIMARY KEY (consumer_no, message_id)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

CREATE TABLE IF NOT EXISTS open_jobs (
    consumer_no INT UNSIGNED      NOT NULL,
    message_id  BINARY(12)        NOT NULL,
    priority    SMALLINT UNSIGNED NOT NULL,
    attempts    INT UNSIGNED      NOT NULL,
    next_ms     BIGINT            NOT NULL,
    changed_ms  BIGINT            NOT NULL,
    status_code SMALLINT          NOT NULL,
    error       VARBINARY(1024)   NOT NULL,
    PRIMARY KEY (consumer_no, message_id)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

CREATE TABLE IF NOT EXISTS dead_jobs (
    consumer_no INT UNSIGNED      NOT NULL,
    message_id  BINARY(12)        NOT NULL,
    priority    SMALLINT UNSIGNED NOT NULL,
    attempts    INT UNSIGNED      NOT NULL,
    died_ms     BIGINT            NOT NULL,
    status_code SMALLINT          NOT NULL,
    reason      VARBINARY(1024)   NOT NULL,
    answer      VARBINARY(1024)   NOT NULL,
    PRIMARY KEY (consumer_no, message_id)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

-- at_ms is part of the key because a redriven job counts from one again.
CREATE TABLE IF NOT EXISTS attempts (
    consumer_no INT UNSIGNED    NOT NULL,
    message_id  BINARY(12)      NOT NULL,
    at_ms       BIGINT          NOT NULL,
    attempt     INT UNSIGNED    NOT NULL,
    status_code SMALLINT        NOT NULL,
    error       VARBINARY(1024) NOT NULL,
    duration_ms BIGINT          NOT NULL,
    answer      VARBINARY(1024) NOT NULL,
    PRIMARY KEY (consumer_no, message_id, at_ms, attempt)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

CREATE TABLE IF NOT EXISTS marks (
    consumer_no INT UNSIGNED NOT NULL,
    message_id  BINARY(12)   NOT NULL,
    PRIMARY KEY (consumer_no)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;
