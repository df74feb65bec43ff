-- Tables of the broker for SQLite; the same as for MySQL, column by column.
-- Small rows live in their key (WITHOUT ROWID); messages do not, because a
-- payload inside a key page would make the tree deep.
-- +goose Up
CREATE TABLE IF NOT EXISTS settings (
    name         TEXT    NOT NULL,
    value        INTEGER NOT NULL,
    PRIMARY KEY (name)
) WITHOUT ROWID;

INSERT INTO settings (name, value)
VALUES ('catalogue', 0), ('nodes', 0)
ON CONFLICT (name) DO NOTHING;

CREATE TABLE IF NOT EXISTS producers (
    no           INTEGER NOT NULL,
    id           BLOB    NOT NULL,
    name         TEXT    NOT NULL,
    token        BLOB    NOT NULL,
    changed_ms   INTEGER NOT NULL,
    version      INTEGER NOT NULL,
    PRIMARY KEY (no)
) WITHOUT ROWID;

CREATE UNIQUE INDEX IF NOT EXISTS producers_id ON producers (id);
CREATE INDEX IF NOT EXISTS producers_version ON producers (version);

CREATE TABLE IF NOT EXISTS channels (
    no           INTEGER NOT NULL,
    id           BLOB    NOT NULL,
    name         TEXT    NOT NULL,
    token        BLOB    NOT NULL,
    audience     INTEGER NOT NULL,
    changed_ms   INTEGER NOT NULL,
    version      INTEGER NOT NULL,
    PRIMARY KEY (no)
) WITHOUT ROWID;

CREATE UNIQUE INDEX IF NOT EXISTS channels_id ON channels (id);
CREATE INDEX IF NOT EXISTS channels_version ON channels (version);

CREATE TABLE IF NOT EXISTS consumers (
    no           INTEGER NOT NULL,
    channel_no   INTEGER NOT NULL,
    position     INTEGER NOT NULL,
    id           BLOB    NOT NULL,
    name         TEXT    NOT NULL,
    token        BLOB    NOT NULL,
    callback_url BLOB    NOT NULL,
    type         INTEGER NOT NULL,
    protocol     BLOB    NOT NULL,
    changed_ms   INTEGER NOT NULL,
    version      INTEGER NOT NULL,
    PRIMARY KEY (no),
    CONSTRAINT consumers_callback CHECK (type <> 0 OR callback_url <> x'')
) WITHOUT ROWID;

CREATE UNIQUE INDEX IF NOT EXISTS consumers_id ON consumers (channel_no, id);
CREATE UNIQUE INDEX IF NOT EXISTS consumers_position ON consumers (channel_no, position);
CREATE INDEX IF NOT EXISTS consumers_version ON consumers (version);

CREATE TABLE IF NOT EXISTS nodes (
    no           INTEGER NOT NULL,
    name         TEXT    NOT NULL,
    token        BLOB    NOT NULL,
    expires_ms   INTEGER NOT NULL,
    PRIMARY KEY (no)
) WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS messages (
    channel_no   INTEGER NOT NULL,
    id           BLOB    NOT NULL,
    producer_no  INTEGER NOT NULL,
    priority     INTEGER NOT NULL,
    audience     INTEGER NOT NULL,
    msg_key      BLOB    NOT NULL DEFAULT x'',
    content_type BLOB    NOT NULL,
    headers      BLOB    NOT NULL,
    payload      BLOB    NOT NULL,
    PRIMARY KEY (channel_no, id),
    CONSTRAINT messages_priority CHECK (priority <= 1023)
);

CREATE TABLE IF NOT EXISTS message_keys (
    channel_no   INTEGER NOT NULL,
    msg_key      BLOB    NOT NULL,
    id           BLOB    NOT NULL,
    PRIMARY KEY (channel_no, msg_key)
) WITHOUT ROWID;

-- inv_priority is 1023 - priority: the key order is the order of delivery.
CREATE TABLE IF NOT EXISTS prioritised (
    channel_no   INTEGER NOT NULL,
    inv_priority INTEGER NOT NULL,
    id           BLOB    NOT NULL,
    audience     INTEGER NOT NULL,
    PRIMARY KEY (channel_no, inv_priority, id)
) WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS deliveries (
    consumer_no  INTEGER NOT NULL,
    message_id   BLOB    NOT NULL,
    attempts     INTEGER NOT NULL,
    at_ms        INTEGER NOT NULL,
    status_code  INTEGER NOT NULL,
    PRIMARY KEY (consumer_no, message_id)
) WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS open_jobs (
    consumer_no  INTEGER NOT NULL,
    message_id   BLOB    NOT NULL,
    priority     INTEGER NOT NULL,
    attempts     INTEGER NOT NULL,
    next_ms      INTEGER NOT NULL,
    changed_ms   INTEGER NOT NULL,
    status_code  INTEGER NOT NULL,
    error        BLOB    NOT NULL,
    PRIMARY KEY (consumer_no, message_id)
) WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS dead_jobs (
    consumer_no  INTEGER NOT NULL,
    message_id   BLOB    NOT NULL,
    priority     INTEGER NOT NULL,
    attempts     INTEGER NOT NULL,
    died_ms      INTEGER NOT NULL,
    status_code  INTEGER NOT NULL,
    reason       BLOB    NOT NULL,
    answer       BLOB    NOT NULL,
    PRIMARY KEY (consumer_no, message_id)
) WITHOUT ROWID;

-- at_ms is part of the key because a redriven job counts from one again.
CREATE TABLE IF NOT EXISTS attempts (
    consumer_no  INTEGER NOT NULL,
    message_id   BLOB    NOT NULL,
    at_ms        INTEGER NOT NULL,
    attempt      INTEGER NOT NULL,
    status_code  INTEGER NOT NULL,
    error        BLOB    NOT NULL,
    duration_ms  INTEGER NOT NULL,
    answer       BLOB    NOT NULL,
    PRIMARY KEY (consumer_no, message_id, at_ms, attempt)
) WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS marks (
    consumer_no  INTEGER NOT NULL,
    message_id   BLOB    NOT NULL,
    PRIMARY KEY (consumer_no)
) WITHOUT ROWID;
