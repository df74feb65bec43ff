-- Bulks: many messages from one body or file. state is that of durable.BulkState. The owner with the
-- token expands rows until lease_ms; fence counts the owners. row_no and byte_pos are the checkpoint:
-- what comes before them is expanded.
-- +goose Up
CREATE TABLE bulks (
    id          BLOB    NOT NULL PRIMARY KEY,
    channel_no  INTEGER NOT NULL,
    producer_no INTEGER NOT NULL,
    state       INTEGER NOT NULL,
    paused      INTEGER NOT NULL,
    owner       BLOB    NOT NULL,
    fence       INTEGER NOT NULL,
    lease_ms    INTEGER NOT NULL,
    next_ms     INTEGER NOT NULL,
    tries       INTEGER NOT NULL,
    spec        BLOB    NOT NULL,
    chunks      INTEGER NOT NULL,
    bytes       INTEGER NOT NULL,
    total       INTEGER NOT NULL,
    row_no      INTEGER NOT NULL,
    byte_pos    INTEGER NOT NULL,
    published   INTEGER NOT NULL,
    rejected    INTEGER NOT NULL,
    duplicates  INTEGER NOT NULL,
    speed       REAL    NOT NULL,
    changed_ms  INTEGER NOT NULL,
    reason      BLOB    NOT NULL
);

CREATE INDEX bulks_state ON bulks (state, next_ms);

CREATE INDEX bulks_channel ON bulks (channel_no, id);

-- The body of a bulk in pieces, cut at any byte. They are removed when the bulk is over.
CREATE TABLE bulk_chunks (
    bulk_id BLOB    NOT NULL,
    no      INTEGER NOT NULL,
    body    BLOB    NOT NULL,
    PRIMARY KEY (bulk_id, no)
);

-- The messages of one step of a bulk. Their IDs are in one block, first_id to last_id, that
-- contains no other message. complete is set once every job of the step is delivered.
CREATE TABLE bulk_steps (
    bulk_id   BLOB    NOT NULL,
    first_id  BLOB    NOT NULL,
    last_id   BLOB    NOT NULL,
    audience  INTEGER NOT NULL,
    messages  INTEGER NOT NULL,
    jobs      INTEGER NOT NULL,
    complete  INTEGER NOT NULL,
    delivered INTEGER NOT NULL,
    PRIMARY KEY (bulk_id, first_id)
) WITHOUT ROWID;

CREATE TABLE bulk_errors (
    bulk_id BLOB    NOT NULL,
    row_no  INTEGER NOT NULL,
    reason  BLOB    NOT NULL,
    PRIMARY KEY (bulk_id, row_no)
) WITHOUT ROWID;
