-- Tables of the broker for MySQL 8 and MariaDB 10.6 or newer. Identifiers, tokens and keys are
-- bytes (VARBINARY), times are Unix milliseconds. No foreign keys and no AUTO_INCREMENT: numbers
-- come from the broker, which allows partitioned and sharded servers.
--
-- This is the first migration. It makes the tables that the migrations 1 to 50 made before the
-- first version. Databases of theirs do not run it, because they have its number. It may run
-- again after a crash, as each migration here: MySQL commits each change of a table by itself.
-- +goose NO TRANSACTION
-- +goose Up
CREATE TABLE IF NOT EXISTS settings (
    name  VARBINARY(64) NOT NULL,
    value BIGINT        NOT NULL,
    PRIMARY KEY (name)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

INSERT INTO settings (name, value)
VALUES ('catalogue', 0), ('nodes', 0)
ON DUPLICATE KEY UPDATE name = name;

-- The store's clock, in one row: ms is its floor, ahead_ms is added to the server's clock, which
-- went back steps times. beat counts the raises of the floor, history names the history of the
-- store.
CREATE TABLE IF NOT EXISTS clock (
    no       TINYINT UNSIGNED NOT NULL,
    ms       BIGINT           NOT NULL,
    ahead_ms BIGINT           NOT NULL,
    steps    BIGINT           NOT NULL,
    beat     BIGINT           NOT NULL,
    history  BIGINT           NOT NULL,
    PRIMARY KEY (no)
) ENGINE = InnoDB;

INSERT INTO clock (no, ms, ahead_ms, steps, beat, history)
VALUES (0, 0, 0, 0, 0, 0)
ON DUPLICATE KEY UPDATE no = no;

-- Numbers of brokers. least_version is the version of the catalogue that the broker with the
-- number must know to insert a message.
CREATE TABLE IF NOT EXISTS nodes (
    no            SMALLINT UNSIGNED NOT NULL,
    name          VARCHAR(255)      NOT NULL,
    token         BINARY(16)        NOT NULL,
    expires_ms    BIGINT            NOT NULL,
    least_version BIGINT            NOT NULL DEFAULT 0,
    PRIMARY KEY (no)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

-- A row is written so that its commit, which a second server confirms, proves what was committed
-- before it. See durable/proof.go.
CREATE TABLE IF NOT EXISTS proofs (
    no     SMALLINT UNSIGNED NOT NULL,
    writes BIGINT UNSIGNED   NOT NULL,
    PRIMARY KEY (no)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

-- The catalogue: producers, channels, their groups, and consumers. Deleted ones keep their rows,
-- so that their numbers are never given away again. deleted_no is 0 while the resource exists,
-- and then its number, which frees its ID for another row. former_token is the token before a
-- rotation, right until former_until_ms. Tokens, secrets, settings and policies may be sealed
-- (package atrest), which makes them longer.
--
-- publish_secret is for signatures of what a producer publishes. settings has what it wants to
-- get back: a record of package policy, NULL where it sets nothing.
CREATE TABLE IF NOT EXISTS producers (
    no              INT UNSIGNED    NOT NULL,
    id              VARBINARY(255)  NOT NULL,
    name            VARCHAR(255)    NOT NULL,
    token           VARBINARY(320)  NOT NULL,
    changed_ms      BIGINT          NOT NULL,
    version         BIGINT          NOT NULL,
    publish_secret  VARBINARY(320)  NOT NULL DEFAULT '',
    deleted_no      INT UNSIGNED    NOT NULL DEFAULT 0,
    settings        VARBINARY(4200) NULL,
    former_token    VARBINARY(320)  NOT NULL DEFAULT '',
    former_until_ms BIGINT          NOT NULL DEFAULT 0,
    PRIMARY KEY (no),
    UNIQUE KEY producers_present (id, deleted_no),
    KEY producers_version (version)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

-- paused is 0 while a channel accepts messages; bit 1 is for a pause of the channel, bit 2 for
-- one of its group, which group_id names, empty for none. intake is how the channel takes
-- messages in: a record of package policy, empty where it sets nothing. shape grows when the
-- channel decides in another way whom later messages reach: the guard of the insert compares it.
CREATE TABLE IF NOT EXISTS channels (
    no              INT UNSIGNED      NOT NULL,
    id              VARBINARY(255)    NOT NULL,
    name            VARCHAR(255)      NOT NULL,
    token           VARBINARY(320)    NOT NULL,
    audience        SMALLINT UNSIGNED NOT NULL,
    changed_ms      BIGINT            NOT NULL,
    version         BIGINT            NOT NULL,
    paused          TINYINT UNSIGNED  NOT NULL DEFAULT 0,
    deleted_no      INT UNSIGNED      NOT NULL DEFAULT 0,
    intake          VARBINARY(1024)   NOT NULL DEFAULT '',
    shape           BIGINT            NOT NULL DEFAULT 0,
    former_token    VARBINARY(320)    NOT NULL DEFAULT '',
    former_until_ms BIGINT            NOT NULL DEFAULT 0,
    group_id        VARBINARY(255)    NOT NULL DEFAULT '',
    PRIMARY KEY (no),
    UNIQUE KEY channels_present (id, deleted_no),
    KEY channels_version (version),
    KEY channels_group (group_id)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

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

-- policy is what a consumer sets: a record of package policy, empty where it sets nothing. state
-- says whether its jobs are delivered; failures_ms and probe_ms are of the failures that count
-- for a tombstone. A consumer has no job of a message after until_id. One that is attached as of
-- a time also has a job of each message after since_id that was stored before the consumer was
-- created; the filter of since_policy, its policy at that time, is for these messages.
CREATE TABLE IF NOT EXISTS consumers (
    no              INT UNSIGNED      NOT NULL,
    channel_no      INT UNSIGNED      NOT NULL,
    position        SMALLINT UNSIGNED NOT NULL,
    id              VARBINARY(255)    NOT NULL,
    name            VARCHAR(255)      NOT NULL,
    token           VARBINARY(320)    NOT NULL,
    callback_url    VARBINARY(4096)   NOT NULL,
    type            TINYINT UNSIGNED  NOT NULL,
    protocol        VARBINARY(16)     NOT NULL,
    changed_ms      BIGINT            NOT NULL,
    version         BIGINT            NOT NULL,
    policy          VARBINARY(16500)  NOT NULL DEFAULT '',
    state           TINYINT UNSIGNED  NOT NULL DEFAULT 0,
    state_reason    VARBINARY(512)    NOT NULL DEFAULT '',
    state_ms        BIGINT            NOT NULL DEFAULT 0,
    failures_ms     BIGINT            NOT NULL DEFAULT 0,
    probe_ms        BIGINT            NOT NULL DEFAULT 0,
    deleted_no      INT UNSIGNED      NOT NULL DEFAULT 0,
    until_id        BINARY(12)        NULL,
    since_id        BINARY(12)        NULL,
    since_policy    VARBINARY(16500)  NOT NULL DEFAULT '',
    former_token    VARBINARY(320)    NOT NULL DEFAULT '',
    former_until_ms BIGINT            NOT NULL DEFAULT 0,
    PRIMARY KEY (no),
    UNIQUE KEY consumers_position (channel_no, position),
    UNIQUE KEY consumers_present (channel_no, id, deleted_no),
    KEY consumers_version (version),
    CONSTRAINT consumers_callback CHECK (type <> 0 OR callback_url <> '')
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

CREATE TABLE IF NOT EXISTS failures (
    consumer_no INT UNSIGNED NOT NULL,
    times       MEDIUMBLOB   NOT NULL,
    PRIMARY KEY (consumer_no)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

-- API tokens: a digest of each, never the token. version is that of the catalogue when it was
-- made. See durable/apitoken.go.
CREATE TABLE IF NOT EXISTS api_tokens (
    id         VARBINARY(16)    NOT NULL,
    name       VARCHAR(255)     NOT NULL,
    scopes     VARBINARY(12000) NOT NULL,
    digest     BINARY(32)       NOT NULL,
    key_id     VARBINARY(16)    NOT NULL,
    created_ms BIGINT           NOT NULL,
    expires_ms BIGINT           NOT NULL,
    used_ms    BIGINT           NOT NULL,
    version    BIGINT           NOT NULL,
    PRIMARY KEY (id)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

-- Access keys of SQS clients. A key is of one channel, and goes with it. Whoever checks a
-- signature needs the secret itself, which may be sealed. See durable/sqskey.go.
CREATE TABLE IF NOT EXISTS sqs_keys (
    id         VARBINARY(64)  NOT NULL,
    channel_no INT UNSIGNED   NOT NULL,
    secret     VARBINARY(200) NOT NULL,
    created_ms BIGINT         NOT NULL,
    PRIMARY KEY (id),
    KEY sqs_keys_channel (channel_no)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

-- audience is NOT NULL on purpose: the guard of an insert makes it NULL when the batch is stale,
-- and that refuses the whole statement. addressed is the map of the positions that the producer
-- named, NULL for all. left_out is the map of the positions whose filter refused the message,
-- NULL for none. Position p is bit 0x80 >> p % 8 of byte p / 8; a position beyond a map is not
-- in it. ttl_ms is the time to live that a message has itself, 0 none.
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
    ttl_ms       BIGINT            NOT NULL DEFAULT 0,
    addressed    VARBINARY(8192)   NULL,
    left_out     VARBINARY(8192)   NULL,
    PRIMARY KEY (channel_no, id),
    CONSTRAINT messages_priority CHECK (priority <= 1023)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin ROW_FORMAT = DYNAMIC;

CREATE TABLE IF NOT EXISTS message_keys (
    channel_no INT UNSIGNED   NOT NULL,
    msg_key    VARBINARY(255) NOT NULL,
    id         BINARY(12)     NOT NULL,
    PRIMARY KEY (channel_no, msg_key)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

-- inv_priority is 1023 - priority: the key order is the order of delivery. The other columns
-- repeat those of the message.
CREATE TABLE IF NOT EXISTS prioritised (
    channel_no   INT UNSIGNED      NOT NULL,
    inv_priority SMALLINT UNSIGNED NOT NULL,
    id           BINARY(12)        NOT NULL,
    audience     SMALLINT UNSIGNED NOT NULL,
    addressed    VARBINARY(8192)   NULL,
    left_out     VARBINARY(8192)   NULL,
    PRIMARY KEY (channel_no, inv_priority, id)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

-- One row for each message with a time to live of its own, until its jobs are over.
CREATE TABLE IF NOT EXISTS expiring (
    expires_ms BIGINT       NOT NULL,
    channel_no INT UNSIGNED NOT NULL,
    id         BINARY(12)   NOT NULL,
    PRIMARY KEY (expires_ms, channel_no, id)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

-- The keys of Idempotency-Key, with a digest of the body. They outlive their messages, and end
-- by their age, which their ID tells. terms is a digest of addressees, time to live and ordering
-- key, NULL where the broker that stored the key did not know terms.
CREATE TABLE IF NOT EXISTS idempotency_keys (
    channel_no  INT UNSIGNED  NOT NULL,
    msg_key     BINARY(17)    NOT NULL,
    id          BINARY(12)    NOT NULL,
    fingerprint BINARY(16)    NOT NULL,
    terms       VARBINARY(16) NULL,
    PRIMARY KEY (channel_no, msg_key),
    KEY idempotency_keys_id (id)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

-- The chain of messages with an ordering key. ordering_keys has the last message of each key,
-- and the one before it; ordered has a row for each message with a key.
CREATE TABLE IF NOT EXISTS ordering_keys (
    channel_no INT UNSIGNED NOT NULL,
    digest     BINARY(16)   NOT NULL,
    last_id    BINARY(12)   NOT NULL,
    prev_id    BINARY(12)   NOT NULL,
    PRIMARY KEY (channel_no, digest)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

CREATE TABLE IF NOT EXISTS ordered (
    channel_no INT UNSIGNED NOT NULL,
    message_id BINARY(12)   NOT NULL,
    prev_id    BINARY(12)   NOT NULL,
    digest     BINARY(16)   NOT NULL,
    PRIMARY KEY (channel_no, message_id),
    KEY ordered_prev (channel_no, prev_id)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

-- What became of messages that were in the journal of a broker: the message in its path, or the
-- reason why there is none. A receipt begins with its time, and ends by its age.
CREATE TABLE IF NOT EXISTS receipts (
    id         BINARY(20)     NOT NULL,
    channel_no INT UNSIGNED   NOT NULL,
    message    VARBINARY(255) NOT NULL,
    reason     VARBINARY(100) NOT NULL,
    PRIMARY KEY (id)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

-- Scheduled messages. status is 0 until the last message of a schedule is sent. occurrence is
-- the number of the message that is sent at due_ms; message_id is the message that was sent
-- last. While a schedule waits, its message ID is in message_keys with the ID of the schedule.
-- Schedules that are due are sent in turns of producers and channels.
--
-- A schedule may be asked for by a delay, which a repeat compares instead of the time, and may
-- be changed. delay_ms is the delay, 0 for a time. changed_ms is when it was changed last, 0 for
-- never; it grows with each change, so the insert of its message compares it. sent_before is the
-- number of the messages of recurrences that it had before: the IDs of its messages go on from
-- there.
CREATE TABLE IF NOT EXISTS scheduled (
    id           BINARY(12)        NOT NULL,
    channel_no   INT UNSIGNED      NOT NULL,
    producer_no  INT UNSIGNED      NOT NULL,
    status       TINYINT UNSIGNED  NOT NULL,
    due_ms       BIGINT            NOT NULL,
    occurrence   BIGINT            NOT NULL,
    message_id   BINARY(12)        NULL,
    msg_key      VARBINARY(255)    NULL,
    recurrence   VARBINARY(255)    NOT NULL,
    priority     SMALLINT UNSIGNED NOT NULL,
    ttl_ms       BIGINT            NOT NULL,
    content_type VARBINARY(255)    NOT NULL,
    headers      BLOB              NOT NULL,
    payload      LONGBLOB          NOT NULL,
    addressed    VARBINARY(8192)   NULL,
    delay_ms     BIGINT            NOT NULL DEFAULT 0,
    changed_ms   BIGINT            NOT NULL DEFAULT 0,
    sent_before  BIGINT            NOT NULL DEFAULT 0,
    PRIMARY KEY (id),
    UNIQUE KEY scheduled_msg_key (channel_no, msg_key),
    KEY scheduled_due (status, due_ms),
    KEY scheduled_channel (channel_no, status, due_ms),
    KEY scheduled_turns (status, producer_no, channel_no, due_ms)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

-- Bulks: many messages from one body or file. state is that of durable.BulkState. The owner with
-- the token expands rows until lease_ms; fence counts the owners. row_no and byte_pos are the
-- checkpoint: what comes before them is expanded. Bulks are claimed a producer at a time, so
-- that one with many of them holds back no other: bulks_work has the bulks of a producer that
-- have the same kind of work together, the longest due first.
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
    KEY bulks_channel (channel_no, id),
    KEY bulks_work (state, paused, producer_no, next_ms, id)
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

-- node and duration_ms, here and below, say which broker made an attempt and how long it took,
-- where that is known. worker is the worker that had a job: name;version, empty or NULL where it
-- did not say who it is.
CREATE TABLE IF NOT EXISTS deliveries (
    consumer_no INT UNSIGNED      NOT NULL,
    message_id  BINARY(12)        NOT NULL,
    attempts    INT UNSIGNED      NOT NULL,
    at_ms       BIGINT            NOT NULL,
    status_code SMALLINT          NOT NULL,
    node        SMALLINT UNSIGNED NULL,
    duration_ms INT UNSIGNED      NULL,
    worker      VARBINARY(200)    NULL,
    PRIMARY KEY (consumer_no, message_id)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

-- redriven_ms is when an open job was dead last, and redrives counts how often the broker itself
-- has redriven it. given_back counts how often pull workers gave the job back since it was
-- stored or redriven, without an attempt. leases_lost counts the leases that ended without a
-- word.
CREATE TABLE IF NOT EXISTS open_jobs (
    consumer_no INT UNSIGNED      NOT NULL,
    message_id  BINARY(12)        NOT NULL,
    priority    SMALLINT UNSIGNED NOT NULL,
    attempts    INT UNSIGNED      NOT NULL,
    next_ms     BIGINT            NOT NULL,
    changed_ms  BIGINT            NOT NULL,
    status_code SMALLINT          NOT NULL,
    error       VARBINARY(1024)   NOT NULL,
    redriven_ms BIGINT            NOT NULL DEFAULT 0,
    redrives    SMALLINT UNSIGNED NOT NULL DEFAULT 0,
    given_back  INT UNSIGNED      NOT NULL DEFAULT 0,
    leases_lost INT UNSIGNED      NOT NULL DEFAULT 0,
    PRIMARY KEY (consumer_no, message_id)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

-- disposal is what became of a dead letter. fingerprint is the cause of its death, of package
-- cause; 0 for none of its own.
CREATE TABLE IF NOT EXISTS dead_jobs (
    consumer_no INT UNSIGNED      NOT NULL,
    message_id  BINARY(12)        NOT NULL,
    priority    SMALLINT UNSIGNED NOT NULL,
    attempts    INT UNSIGNED      NOT NULL,
    died_ms     BIGINT            NOT NULL,
    status_code SMALLINT          NOT NULL,
    reason      VARBINARY(1024)   NOT NULL,
    answer      VARBINARY(1024)   NOT NULL,
    reason_code TINYINT UNSIGNED  NOT NULL DEFAULT 0,
    redrives    SMALLINT UNSIGNED NOT NULL DEFAULT 0,
    disposal    TINYINT UNSIGNED  NOT NULL DEFAULT 0,
    leases_lost INT UNSIGNED      NOT NULL DEFAULT 0,
    given_back  INT UNSIGNED      NOT NULL DEFAULT 0,
    worker      VARBINARY(200)    NOT NULL DEFAULT '',
    fingerprint BIGINT            NOT NULL DEFAULT 0,
    PRIMARY KEY (consumer_no, message_id),
    KEY dead_jobs_fingerprint (consumer_no, fingerprint, message_id)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

-- How many dead letters of a consumer have one fingerprint: the number of rows of dead_jobs that
-- have it and are not removed from the DLQ, and the latest of them. A row goes with the last
-- one. See durable/deadgroup.go.
CREATE TABLE IF NOT EXISTS dead_groups (
    consumer_no INT UNSIGNED   NOT NULL,
    fingerprint BIGINT         NOT NULL,
    jobs        BIGINT         NOT NULL,
    first_ms    BIGINT         NOT NULL,
    last_ms     BIGINT         NOT NULL,
    status_code SMALLINT       NOT NULL,
    sample      VARBINARY(255) NOT NULL,
    sample_id   BINARY(12)     NOT NULL,
    PRIMARY KEY (consumer_no, fingerprint)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

-- at_ms is part of the key because a redriven job counts from one again. phase says how far a
-- failed attempt came.
CREATE TABLE IF NOT EXISTS attempts (
    consumer_no INT UNSIGNED      NOT NULL,
    message_id  BINARY(12)        NOT NULL,
    at_ms       BIGINT            NOT NULL,
    attempt     INT UNSIGNED      NOT NULL,
    status_code SMALLINT          NOT NULL,
    error       VARBINARY(1024)   NOT NULL,
    duration_ms BIGINT            NOT NULL,
    answer      VARBINARY(1024)   NOT NULL,
    phase       TINYINT UNSIGNED  NOT NULL DEFAULT 0,
    node        SMALLINT UNSIGNED NULL,
    worker      VARBINARY(200)    NOT NULL DEFAULT '',
    PRIMARY KEY (consumer_no, message_id, at_ms, attempt)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

-- The redrives of dead letters, each with the death that it ended.
CREATE TABLE IF NOT EXISTS redrives (
    consumer_no INT UNSIGNED     NOT NULL,
    message_id  BINARY(12)       NOT NULL,
    at_ms       BIGINT           NOT NULL,
    how         TINYINT UNSIGNED NOT NULL,
    died_ms     BIGINT           NOT NULL,
    attempts    INT UNSIGNED     NOT NULL,
    status_code SMALLINT         NOT NULL,
    reason_code TINYINT UNSIGNED NOT NULL,
    reason      VARBINARY(1024)  NOT NULL,
    PRIMARY KEY (consumer_no, message_id, at_ms)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

-- Redrives of selected dead letters of a consumer. cursor_id is the progress: each letter up to
-- it that was meant is open again, and redriven counts them. busy is 1 while a broker has
-- something to do for it. replay_no is the replay with the letters, of a redrive to another
-- consumer. See durable/redriving.go.
CREATE TABLE IF NOT EXISTS redrivings (
    consumer_no     INT UNSIGNED     NOT NULL,
    no              INT UNSIGNED     NOT NULL,
    busy            TINYINT UNSIGNED NOT NULL,
    state           TINYINT UNSIGNED NOT NULL,
    has_fingerprint TINYINT UNSIGNED NOT NULL,
    fingerprint     BIGINT           NOT NULL,
    reasons         BIGINT           NOT NULL,
    from_ms         BIGINT           NOT NULL,
    to_ms           BIGINT           NOT NULL,
    most            BIGINT           NOT NULL,
    picked          TINYINT UNSIGNED NOT NULL,
    rate            VARBINARY(64)    NOT NULL,
    canary          TINYINT UNSIGNED NOT NULL,
    target_no       INT UNSIGNED     NOT NULL,
    replay_no       INT UNSIGNED     NOT NULL,
    created_ms      BIGINT           NOT NULL,
    state_ms        BIGINT           NOT NULL,
    reason          VARBINARY(1024)  NOT NULL,
    matched         BIGINT           NOT NULL,
    approximate     TINYINT UNSIGNED NOT NULL,
    cursor_id       BINARY(12)       NOT NULL,
    redriven        BIGINT           NOT NULL,
    delivered       BIGINT           NOT NULL,
    dead            BIGINT           NOT NULL,
    stage           TINYINT UNSIGNED NOT NULL,
    stage_ms        BIGINT           NOT NULL,
    stage_jobs      BIGINT           NOT NULL,
    stage_over      BIGINT           NOT NULL,
    stage_again     BIGINT           NOT NULL,
    PRIMARY KEY (consumer_no, no),
    KEY redrivings_busy (busy, consumer_no, no)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

-- The jobs of a redrive: with moved_ms 0 those that it is still to open, where it was asked for
-- single ones; else those that it has opened and that are not over. fingerprint is that of the
-- letter.
CREATE TABLE IF NOT EXISTS redriving_jobs (
    consumer_no INT UNSIGNED     NOT NULL,
    no          INT UNSIGNED     NOT NULL,
    message_id  BINARY(12)       NOT NULL,
    moved_ms    BIGINT           NOT NULL,
    stage       TINYINT UNSIGNED NOT NULL,
    fingerprint BIGINT           NOT NULL,
    PRIMARY KEY (consumer_no, no, message_id)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

-- The leases of pull jobs that a broker with an embedded Redis had when it stopped, until its
-- next start. See durable/keptlease.go.
CREATE TABLE IF NOT EXISTS kept_leases (
    consumer_no INT UNSIGNED      NOT NULL,
    message_id  BINARY(12)        NOT NULL,
    priority    SMALLINT UNSIGNED NOT NULL,
    attempt     INT UNSIGNED      NOT NULL,
    token       VARBINARY(64)     NOT NULL,
    until_ms    BIGINT            NOT NULL,
    worker      VARBINARY(200)    NOT NULL DEFAULT '',
    PRIMARY KEY (consumer_no, message_id)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

CREATE TABLE IF NOT EXISTS marks (
    consumer_no INT UNSIGNED NOT NULL,
    message_id  BINARY(12)   NOT NULL,
    PRIMARY KEY (consumer_no)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

-- The books of consumers: sums of stretches of messages below the settled watermark, which do
-- not overlap. A stretch has the messages with after_id < ID <= through_id.
CREATE TABLE IF NOT EXISTS books (
    consumer_no INT UNSIGNED NOT NULL,
    after_id    BINARY(12)   NOT NULL,
    through_id  BINARY(12)   NOT NULL,
    accepted    BIGINT       NOT NULL,
    filtered    BIGINT       NOT NULL,
    delivered   BIGINT       NOT NULL,
    PRIMARY KEY (consumer_no, after_id)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

-- What each producer stores: sums of the messages up to a mark in each channel. Without a bound
-- both tables are empty. See durable/stored.go.
CREATE TABLE IF NOT EXISTS stored_sums (
    producer_no INT UNSIGNED NOT NULL,
    messages    BIGINT       NOT NULL,
    bytes       BIGINT       NOT NULL,
    PRIMARY KEY (producer_no)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

CREATE TABLE IF NOT EXISTS stored_marks (
    channel_no INT UNSIGNED NOT NULL,
    through_id BINARY(12)   NOT NULL,
    PRIMARY KEY (channel_no)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

-- What the channels with limits of their own on what is kept have: up to which message their
-- messages are counted, and what their limits have removed; and the counts, by stretches of
-- messages. Without such a channel both tables are empty. See durable/keeping.go.
CREATE TABLE IF NOT EXISTS kept_channels (
    channel_no INT UNSIGNED     NOT NULL,
    counted_id BINARY(12)       NOT NULL,
    removed_id BINARY(12)       NOT NULL,
    removed    BIGINT           NOT NULL DEFAULT 0,
    limit_code TINYINT UNSIGNED NOT NULL DEFAULT 0,
    at_ms      BIGINT           NOT NULL DEFAULT 0,
    PRIMARY KEY (channel_no)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

CREATE TABLE IF NOT EXISTS kept_stretches (
    channel_no INT UNSIGNED NOT NULL,
    through_id BINARY(12)   NOT NULL,
    messages   BIGINT       NOT NULL,
    bytes      BIGINT       NOT NULL,
    PRIMARY KEY (channel_no, through_id)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

-- How fast adaptive consumers are delivered to, and the attempts of the present period. One row
-- for each consumer that was ever adaptive and had an attempt.
CREATE TABLE IF NOT EXISTS paces (
    consumer_no INT UNSIGNED     NOT NULL,
    mode        TINYINT UNSIGNED NOT NULL,
    rate        INT UNSIGNED     NOT NULL,
    good        INT UNSIGNED     NOT NULL,
    strained    INT UNSIGNED     NOT NULL,
    since_ms    BIGINT           NOT NULL,
    PRIMARY KEY (consumer_no)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

-- How long the jobs of a consumer are held because it asked for that (Retry-After), or refused
-- an access token that was just renewed. One row for each consumer that ever did, until what it
-- said is about no longer holds.
CREATE TABLE IF NOT EXISTS holds (
    consumer_no INT UNSIGNED   NOT NULL,
    since_ms    BIGINT         NOT NULL,
    until_ms    BIGINT         NOT NULL,
    held_by     VARBINARY(255) NOT NULL,
    PRIMARY KEY (consumer_no)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

-- The last attempts of a consumer, as the brokers last wrote them: at most a second old. One row
-- for each consumer that ever had an attempt. claim_ms is when a worker of a pull consumer last
-- claimed, so a wiped Redis and a restart do not forget it.
CREATE TABLE IF NOT EXISTS consumer_facts (
    consumer_no INT UNSIGNED   NOT NULL,
    attempt_ms  BIGINT         NOT NULL,
    success_ms  BIGINT         NOT NULL,
    status_code INT            NOT NULL,
    error       VARBINARY(255) NOT NULL,
    claim_ms    BIGINT         NOT NULL DEFAULT 0,
    PRIMARY KEY (consumer_no)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

-- Replays of consumers. no is from the sequence of consumers.no, so outcome tables take it as a
-- consumer. The messages are those with after_id < ID <= through_id; up to settled_id each job
-- has an outcome or a row in open_jobs, and jobs, bytes count them. matched is what was counted
-- at the begin. delivered and dead are written at the end. source_no and redrive_no are of a
-- replay of the letters of a redrive to another consumer.
CREATE TABLE IF NOT EXISTS replays (
    no          INT UNSIGNED     NOT NULL,
    channel_no  INT UNSIGNED     NOT NULL,
    consumer_no INT UNSIGNED     NOT NULL,
    after_id    BINARY(12)       NOT NULL,
    through_id  BINARY(12)       NOT NULL,
    selected    TINYINT UNSIGNED NOT NULL,
    filter      VARBINARY(4096)  NOT NULL,
    rate        VARBINARY(64)    NOT NULL,
    state       TINYINT UNSIGNED NOT NULL,
    created_ms  BIGINT           NOT NULL,
    state_ms    BIGINT           NOT NULL,
    removed_ms  BIGINT           NOT NULL,
    matched     BIGINT           NOT NULL,
    bytes       BIGINT           NOT NULL,
    estimated   TINYINT UNSIGNED NOT NULL,
    settled_id  BINARY(12)       NOT NULL,
    jobs        BIGINT           NOT NULL,
    job_bytes   BIGINT           NOT NULL,
    delivered   BIGINT           NOT NULL,
    dead        BIGINT           NOT NULL,
    version     BIGINT           NOT NULL,
    source_no   INT UNSIGNED     NOT NULL DEFAULT 0,
    redrive_no  INT UNSIGNED     NOT NULL DEFAULT 0,
    PRIMARY KEY (no),
    KEY replays_consumer (channel_no, consumer_no, no)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

-- A row for each job whose consumer has responses on, from its outcome on. due_ms is when a
-- broker has to do something about the row: the result is polled, the response is published to
-- the sender, or its body is dropped. It is the largest number where nothing is left to do.
CREATE TABLE IF NOT EXISTS exchanges (
    consumer_no  INT UNSIGNED      NOT NULL,
    message_id   BINARY(12)        NOT NULL,
    state        TINYINT UNSIGNED  NOT NULL,
    goes_back    TINYINT UNSIGNED  NOT NULL,
    attempt      INT UNSIGNED      NOT NULL,
    status_code  SMALLINT UNSIGNED NOT NULL,
    truncated    TINYINT UNSIGNED  NOT NULL,
    delivered_ms BIGINT            NOT NULL,
    received_ms  BIGINT            NOT NULL,
    ended_ms     BIGINT            NOT NULL,
    deadline_ms  BIGINT            NOT NULL,
    keep_ms      BIGINT            NOT NULL,
    due_ms       BIGINT            NOT NULL,
    tries        INT UNSIGNED      NOT NULL,
    url          VARBINARY(2048)   NOT NULL,
    reason       VARBINARY(1024)   NOT NULL,
    headers      BLOB              NOT NULL,
    body         MEDIUMBLOB        NOT NULL,
    PRIMARY KEY (consumer_no, message_id),
    KEY exchanges_due (consumer_no, due_ms)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

-- A row for each response that waits because its producer has no reply URL: the deletion of the
-- producer, and a URL, find what waits for it.
CREATE TABLE IF NOT EXISTS awaiting_replies (
    consumer_no INT UNSIGNED NOT NULL,
    message_id  BINARY(12)   NOT NULL,
    producer_no INT UNSIGNED NOT NULL,
    PRIMARY KEY (consumer_no, message_id),
    KEY awaiting_replies_producer (producer_no, consumer_no, message_id)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

-- status_events are events that a producer wants to hear of, until a batch takes them over;
-- status_batches are batches on their way.
CREATE TABLE IF NOT EXISTS status_events (
    producer_no INT UNSIGNED     NOT NULL,
    event_key   BINARY(24)       NOT NULL,
    attempt     INT UNSIGNED     NOT NULL,
    status_code SMALLINT         NOT NULL,
    reason_code TINYINT UNSIGNED NOT NULL,
    PRIMARY KEY (producer_no, event_key)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

CREATE TABLE IF NOT EXISTS status_batches (
    id          BINARY(12)   NOT NULL,
    producer_no INT UNSIGNED NOT NULL,
    body        LONGBLOB     NOT NULL,
    PRIMARY KEY (id)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

-- Alerts on their way: a row for each alert and place that it still has to reach.
CREATE TABLE IF NOT EXISTS alerts (
    sink        TINYINT UNSIGNED NOT NULL,
    at_ms       BIGINT           NOT NULL,
    consumer_no INT UNSIGNED     NOT NULL,
    event       TINYINT UNSIGNED NOT NULL,
    channel_id  VARBINARY(255)   NOT NULL,
    consumer_id VARBINARY(255)   NOT NULL,
    reason      VARBINARY(512)   NOT NULL,
    tries       INT UNSIGNED     NOT NULL,
    next_ms     BIGINT           NOT NULL,
    PRIMARY KEY (sink, at_ms, consumer_no, event)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

-- States that were alerted and have not ended: the event, and the consumer or, of
-- channel.silent, the channel. See durable/alarm.go.
CREATE TABLE IF NOT EXISTS open_alarms (
    event      TINYINT UNSIGNED NOT NULL,
    subject_no INT UNSIGNED     NOT NULL,
    since_ms   BIGINT           NOT NULL,
    PRIMARY KEY (event, subject_no)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

-- Of brokers before open_alarms. Nothing uses it any more.
CREATE TABLE IF NOT EXISTS dlq_growth (
    consumer_no INT UNSIGNED NOT NULL,
    since_ms    BIGINT       NOT NULL,
    PRIMARY KEY (consumer_no)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

-- A channel with expectEvery has a row: from when on silence counts at the earliest, because it
-- is the time of a message, of the setting, or of the end of a pause. See durable/rhythm.go.
CREATE TABLE IF NOT EXISTS rhythms (
    channel_no INT UNSIGNED NOT NULL,
    since_ms   BIGINT       NOT NULL,
    PRIMARY KEY (channel_no)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

-- The history: what brokers counted in slots of 10 seconds, a minute and ten minutes (step, in
-- seconds), of the whole (scope 0), of a channel (1) and of a consumer (2) with its number. A
-- row is what one broker counted since it started, in one slot, so it may be written again; a
-- reader adds the rows of all writers. acks and deliveries are encoded histograms. See
-- durable/historyrow.go.
CREATE TABLE IF NOT EXISTS history (
    scope      TINYINT UNSIGNED  NOT NULL,
    no         INT UNSIGNED      NOT NULL,
    step       SMALLINT UNSIGNED NOT NULL,
    at_ms      BIGINT            NOT NULL,
    writer     INT UNSIGNED      NOT NULL,
    accepted   BIGINT            NOT NULL,
    delivered  BIGINT            NOT NULL,
    failed     BIGINT            NOT NULL,
    dead       BIGINT            NOT NULL,
    oldest_ms  BIGINT            NOT NULL,
    acks       VARBINARY(1024)   NOT NULL,
    deliveries VARBINARY(1024)   NOT NULL,
    PRIMARY KEY (scope, no, step, at_ms, writer),
    KEY history_at (step, at_ms)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

-- What happened: the start of a broker (kind 1), the first broker of a version (2), the change
-- of a policy (3) of a channel, or of a consumer. no is random, for two marks of one
-- millisecond.
CREATE TABLE IF NOT EXISTS history_marks (
    at_ms       BIGINT           NOT NULL,
    no          INT UNSIGNED     NOT NULL,
    kind        TINYINT UNSIGNED NOT NULL,
    channel_no  INT UNSIGNED     NOT NULL,
    consumer_no INT UNSIGNED     NOT NULL,
    note        VARBINARY(1024)  NOT NULL,
    PRIMARY KEY (at_ms, no)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

-- The audit log: one entry for each change by somebody who manages the broker. Entries are only
-- added. Each has the hash of itself and of the entry before it; the head is the last one, whose
-- lock puts the brokers in a row. deed is the name of the change, so that a transaction which is
-- repeated writes one entry. See durable/audit.go.
CREATE TABLE IF NOT EXISTS audit (
    no           BIGINT UNSIGNED NOT NULL,
    at_ms        BIGINT          NOT NULL,
    who          VARBINARY(1024) NOT NULL,
    from_address VARBINARY(255)  NOT NULL,
    action       VARBINARY(64)   NOT NULL,
    resource     VARBINARY(2048) NOT NULL,
    before_json  MEDIUMBLOB      NOT NULL,
    after_json   MEDIUMBLOB      NOT NULL,
    hash         BINARY(32)      NOT NULL,
    deed         BINARY(16)      NOT NULL,
    PRIMARY KEY (no),
    UNIQUE KEY audit_deed (deed),
    KEY audit_time (at_ms)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

CREATE TABLE IF NOT EXISTS audit_head (
    one   TINYINT UNSIGNED NOT NULL,
    no    BIGINT UNSIGNED  NOT NULL,
    at_ms BIGINT           NOT NULL,
    hash  VARBINARY(32)    NOT NULL,
    PRIMARY KEY (one)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

INSERT INTO audit_head (one, no, at_ms, hash)
VALUES (1, 0, 0, '')
ON DUPLICATE KEY UPDATE one = one;
