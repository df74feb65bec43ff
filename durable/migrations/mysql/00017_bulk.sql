-- Bulks: many messages from one body or file. state is that of durable.BulkState. The owner with the
-- token expands rows until lease_ms; fence counts the owners. row_no and byte_pos are the checkpoint:
-- what comes before them is expanded.
-- +goose NO TRANSACTION
-- +goose Up
CREATE TABLE IF NOT EXISTS bulks (
    id          BINARY(12)       NOT NULL,
    channel_no  INT UNSIGNED     NOT NULL,
    producer_no INT UNSIGNED     NOT NULL,
    state       TINYINT UNSIGNED NOT NULL,
    paused      TINYINT UNSIGNED NOT NULL,
    owner       BINARY(16)       NOT NULL,
    fence       BIGINT           NOT NULL,
    lease_ms    BIGINT           NOT NULL,
    next_ms     BIGINT           NOT NULL,
    tries       INT UNSIGNED     NOT NULL,
    spec        MEDIUMBLOB       NOT NULL,
    chunks      BIGINT           NOT NULL,
    bytes       BIGINT           NOT NULL,
    total       BIGINT           NOT NULL,
    row_no      BIGINT           NOT NULL,
    byte_pos    BIGINT           NOT NULL,
    published   BIGINT           NOT NULL,
    rejected    BIGINT           NOT NULL,
    duplicates  BIGINT           NOT NULL,
    speed       DOUBLE           NOT NULL,
    changed_ms  BIGINT           NOT NULL,
    reason      VARBINARY(1024)  NOT NULL,
    PRIMARY KEY (id),
    KEY bulks_state (state, next_ms),
    KEY bulks_channel (channel_no, id)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

-- The body of a bulk in pieces, cut at any byte. They are removed when the bulk is over.
CREATE TABLE IF NOT EXISTS bulk_chunks (
    bulk_id BINARY(12) NOT NULL,
    no      BIGINT     NOT NULL,
    body    MEDIUMBLOB NOT NULL,
    PRIMARY KEY (bulk_id, no)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

-- The messages of one step of a bulk. Their IDs are in one block, first_id to last_id, that
-- contains no other message. complete is set once every job of the step is delivered.
CREATE TABLE IF NOT EXISTS bulk_steps (
    bulk_id   BINARY(12)       NOT NULL,
    first_id  BINARY(12)       NOT NULL,
    last_id   BINARY(12)       NOT NULL,
    audience  INT UNSIGNED     NOT NULL,
    messages  INT UNSIGNED     NOT NULL,
    jobs      BIGINT           NOT NULL,
    complete  TINYINT UNSIGNED NOT NULL,
    delivered BIGINT           NOT NULL,
    PRIMARY KEY (bulk_id, first_id)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

CREATE TABLE IF NOT EXISTS bulk_errors (
    bulk_id BINARY(12)     NOT NULL,
    row_no  BIGINT         NOT NULL,
    reason  VARBINARY(512) NOT NULL,
    PRIMARY KEY (bulk_id, row_no)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;
