-- Tables of the broker for SQLite; the same as for MySQL, column by column. Small rows live in
-- their key (WITHOUT ROWID). Rows with a payload or a body do not, because it would make the
-- tree of a key deep.
--
-- This is the first migration. It makes the tables that the migrations 1 to 50 made before the
-- first version. Databases of theirs do not run it, because they have its number.
-- +goose Up
CREATE TABLE IF NOT EXISTS settings (
    name  TEXT    NOT NULL,
    value INTEGER NOT NULL,
    PRIMARY KEY (name)
) WITHOUT ROWID;

INSERT INTO settings (name, value)
VALUES ('catalogue', 0), ('nodes', 0)
ON CONFLICT (name) DO NOTHING;

-- The store's clock, in one row: ms is its floor, ahead_ms is added to the server's clock, which
-- went back steps times. beat counts the raises of the floor, history names the history of the
-- store.
CREATE TABLE IF NOT EXISTS clock (
    no       INTEGER NOT NULL,
    ms       INTEGER NOT NULL,
    ahead_ms INTEGER NOT NULL,
    steps    INTEGER NOT NULL,
    beat     INTEGER NOT NULL,
    history  INTEGER NOT NULL,
    PRIMARY KEY (no)
) WITHOUT ROWID;

INSERT INTO clock (no, ms, ahead_ms, steps, beat, history)
VALUES (0, 0, 0, 0, 0, 0)
ON CONFLICT (no) DO NOTHING;

-- Numbers of brokers. least_version is the version of the catalogue that the broker with the
-- number must know to insert a message.
CREATE TABLE IF NOT EXISTS nodes (
    no            INTEGER NOT NULL,
    name          TEXT    NOT NULL,
    token         BLOB    NOT NULL,
    expires_ms    INTEGER NOT NULL,
    least_version INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (no)
) WITHOUT ROWID;

-- SQLite has no second server: this table stays empty.
CREATE TABLE IF NOT EXISTS proofs (
    no     INTEGER NOT NULL,
    writes INTEGER NOT NULL,
    PRIMARY KEY (no)
);

-- The catalogue: producers, channels, their groups, and consumers. Deleted ones keep their rows,
-- so that their numbers are never given away again. deleted_no is 0 while the resource exists,
-- and then its number, which frees its ID for another row. former_token is the token before a
-- rotation, right until former_until_ms. Tokens, secrets, settings and policies may be sealed
-- (package atrest), which makes them longer.
--
-- publish_secret is for signatures of what a producer publishes. settings has what it wants to
-- get back: a record of package policy, NULL where it sets nothing.
CREATE TABLE IF NOT EXISTS producers (
    no              INTEGER NOT NULL,
    id              BLOB    NOT NULL,
    name            TEXT    NOT NULL,
    token           BLOB    NOT NULL,
    changed_ms      INTEGER NOT NULL,
    version         INTEGER NOT NULL,
    publish_secret  BLOB    NOT NULL DEFAULT x'',
    deleted_no      INTEGER NOT NULL DEFAULT 0,
    settings        BLOB,
    former_token    BLOB    NOT NULL DEFAULT '',
    former_until_ms INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (no)
) WITHOUT ROWID;

CREATE UNIQUE INDEX IF NOT EXISTS producers_present ON producers (id, deleted_no);
CREATE INDEX IF NOT EXISTS producers_version ON producers (version);

-- paused is 0 while a channel accepts messages; bit 1 is for a pause of the channel, bit 2 for
-- one of its group, which group_id names, empty for none. intake is how the channel takes
-- messages in: a record of package policy, empty where it sets nothing. shape grows when the
-- channel decides in another way whom later messages reach: the guard of the insert compares it.
CREATE TABLE IF NOT EXISTS channels (
    no              INTEGER NOT NULL,
    id              BLOB    NOT NULL,
    name            TEXT    NOT NULL,
    token           BLOB    NOT NULL,
    audience        INTEGER NOT NULL,
    changed_ms      INTEGER NOT NULL,
    version         INTEGER NOT NULL,
    paused          INTEGER NOT NULL DEFAULT 0,
    deleted_no      INTEGER NOT NULL DEFAULT 0,
    intake          BLOB    NOT NULL DEFAULT x'',
    shape           INTEGER NOT NULL DEFAULT 0,
    former_token    BLOB    NOT NULL DEFAULT '',
    former_until_ms INTEGER NOT NULL DEFAULT 0,
    group_id        BLOB    NOT NULL DEFAULT x'',
    PRIMARY KEY (no)
) WITHOUT ROWID;

CREATE UNIQUE INDEX IF NOT EXISTS channels_present ON channels (id, deleted_no);
CREATE INDEX IF NOT EXISTS channels_version ON channels (version);
CREATE INDEX IF NOT EXISTS channels_group ON channels (group_id);

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

-- policy is what a consumer sets: a record of package policy, empty where it sets nothing. state
-- says whether its jobs are delivered; failures_ms and probe_ms are of the failures that count
-- for a tombstone. A consumer has no job of a message after until_id. One that is attached as of
-- a time also has a job of each message after since_id that was stored before the consumer was
-- created; the filter of since_policy, its policy at that time, is for these messages.
CREATE TABLE IF NOT EXISTS consumers (
    no              INTEGER NOT NULL,
    channel_no      INTEGER NOT NULL,
    position        INTEGER NOT NULL,
    id              BLOB    NOT NULL,
    name            TEXT    NOT NULL,
    token           BLOB    NOT NULL,
    callback_url    BLOB    NOT NULL,
    type            INTEGER NOT NULL,
    protocol        BLOB    NOT NULL,
    changed_ms      INTEGER NOT NULL,
    version         INTEGER NOT NULL,
    policy          BLOB    NOT NULL DEFAULT x'',
    state           INTEGER NOT NULL DEFAULT 0,
    state_reason    BLOB    NOT NULL DEFAULT x'',
    state_ms        INTEGER NOT NULL DEFAULT 0,
    failures_ms     INTEGER NOT NULL DEFAULT 0,
    probe_ms        INTEGER NOT NULL DEFAULT 0,
    deleted_no      INTEGER NOT NULL DEFAULT 0,
    until_id        BLOB,
    since_id        BLOB,
    since_policy    BLOB    NOT NULL DEFAULT x'',
    former_token    BLOB    NOT NULL DEFAULT '',
    former_until_ms INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (no),
    CONSTRAINT consumers_callback CHECK (type <> 0 OR callback_url <> x'')
) WITHOUT ROWID;

CREATE UNIQUE INDEX IF NOT EXISTS consumers_position ON consumers (channel_no, position);
CREATE UNIQUE INDEX IF NOT EXISTS consumers_present ON consumers (channel_no, id, deleted_no);
CREATE INDEX IF NOT EXISTS consumers_version ON consumers (version);

CREATE TABLE IF NOT EXISTS failures (
    consumer_no INTEGER NOT NULL,
    times       BLOB    NOT NULL,
    PRIMARY KEY (consumer_no)
) WITHOUT ROWID;

-- API tokens: a digest of each, never the token. version is that of the catalogue when it was
-- made. See durable/apitoken.go.
CREATE TABLE IF NOT EXISTS api_tokens (
    id         BLOB    NOT NULL,
    name       TEXT    NOT NULL,
    scopes     BLOB    NOT NULL,
    digest     BLOB    NOT NULL,
    key_id     BLOB    NOT NULL,
    created_ms INTEGER NOT NULL,
    expires_ms INTEGER NOT NULL,
    used_ms    INTEGER NOT NULL,
    version    INTEGER NOT NULL,
    PRIMARY KEY (id)
) WITHOUT ROWID;

-- Access keys of SQS clients. A key is of one channel, and goes with it. Whoever checks a
-- signature needs the secret itself, which may be sealed. See durable/sqskey.go.
CREATE TABLE IF NOT EXISTS sqs_keys (
    id         BLOB    NOT NULL,
    channel_no INTEGER NOT NULL,
    secret     BLOB    NOT NULL,
    created_ms INTEGER NOT NULL,
    PRIMARY KEY (id)
) WITHOUT ROWID;

CREATE INDEX IF NOT EXISTS sqs_keys_channel ON sqs_keys (channel_no);

-- addressed is the map of the positions that the producer named, NULL for all. left_out is the
-- map of the positions whose filter refused the message, NULL for none. Position p is bit 0x80
-- >> p % 8 of byte p / 8; a position beyond a map is not in it. ttl_ms is the time to live that
-- a message has itself, 0 none.
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
    ttl_ms       INTEGER NOT NULL DEFAULT 0,
    addressed    BLOB,
    left_out     BLOB,
    PRIMARY KEY (channel_no, id),
    CONSTRAINT messages_priority CHECK (priority <= 1023)
);

CREATE TABLE IF NOT EXISTS message_keys (
    channel_no INTEGER NOT NULL,
    msg_key    BLOB    NOT NULL,
    id         BLOB    NOT NULL,
    PRIMARY KEY (channel_no, msg_key)
) WITHOUT ROWID;

-- inv_priority is 1023 - priority: the key order is the order of delivery. The other columns
-- repeat those of the message.
CREATE TABLE IF NOT EXISTS prioritised (
    channel_no   INTEGER NOT NULL,
    inv_priority INTEGER NOT NULL,
    id           BLOB    NOT NULL,
    audience     INTEGER NOT NULL,
    addressed    BLOB,
    left_out     BLOB,
    PRIMARY KEY (channel_no, inv_priority, id)
) WITHOUT ROWID;

-- One row for each message with a time to live of its own, until its jobs are over.
CREATE TABLE IF NOT EXISTS expiring (
    expires_ms INTEGER NOT NULL,
    channel_no INTEGER NOT NULL,
    id         BLOB    NOT NULL,
    PRIMARY KEY (expires_ms, channel_no, id)
) WITHOUT ROWID;

-- The keys of Idempotency-Key, with a digest of the body. They outlive their messages, and end
-- by their age, which their ID tells. terms is a digest of addressees, time to live and ordering
-- key, NULL where the broker that stored the key did not know terms.
CREATE TABLE IF NOT EXISTS idempotency_keys (
    channel_no  INTEGER NOT NULL,
    msg_key     BLOB    NOT NULL,
    id          BLOB    NOT NULL,
    fingerprint BLOB    NOT NULL,
    terms       BLOB,
    PRIMARY KEY (channel_no, msg_key)
) WITHOUT ROWID;

CREATE INDEX IF NOT EXISTS idempotency_keys_id ON idempotency_keys (id);

-- The chain of messages with an ordering key. ordering_keys has the last message of each key,
-- and the one before it; ordered has a row for each message with a key.
CREATE TABLE IF NOT EXISTS ordering_keys (
    channel_no INTEGER NOT NULL,
    digest     BLOB    NOT NULL,
    last_id    BLOB    NOT NULL,
    prev_id    BLOB    NOT NULL,
    PRIMARY KEY (channel_no, digest)
) WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS ordered (
    channel_no INTEGER NOT NULL,
    message_id BLOB    NOT NULL,
    prev_id    BLOB    NOT NULL,
    digest     BLOB    NOT NULL,
    PRIMARY KEY (channel_no, message_id)
) WITHOUT ROWID;

CREATE INDEX IF NOT EXISTS ordered_prev ON ordered (channel_no, prev_id);

-- What became of messages that were in the journal of a broker: the message in its path, or the
-- reason why there is none. A receipt begins with its time, and ends by its age.
CREATE TABLE IF NOT EXISTS receipts (
    id         BLOB    NOT NULL,
    channel_no INTEGER NOT NULL,
    message    BLOB    NOT NULL,
    reason     BLOB    NOT NULL,
    PRIMARY KEY (id)
) WITHOUT ROWID;

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
    id           BLOB    NOT NULL,
    channel_no   INTEGER NOT NULL,
    producer_no  INTEGER NOT NULL,
    status       INTEGER NOT NULL,
    due_ms       INTEGER NOT NULL,
    occurrence   INTEGER NOT NULL,
    message_id   BLOB,
    msg_key      BLOB,
    recurrence   BLOB    NOT NULL,
    priority     INTEGER NOT NULL,
    ttl_ms       INTEGER NOT NULL,
    content_type BLOB    NOT NULL,
    headers      BLOB    NOT NULL,
    payload      BLOB    NOT NULL,
    addressed    BLOB,
    delay_ms     INTEGER NOT NULL DEFAULT 0,
    changed_ms   INTEGER NOT NULL DEFAULT 0,
    sent_before  INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (id)
);

CREATE UNIQUE INDEX IF NOT EXISTS scheduled_msg_key ON scheduled (channel_no, msg_key);
CREATE INDEX IF NOT EXISTS scheduled_due ON scheduled (status, due_ms, id);
CREATE INDEX IF NOT EXISTS scheduled_channel ON scheduled (channel_no, status, due_ms, id);
CREATE INDEX IF NOT EXISTS scheduled_turns ON scheduled (status, producer_no, channel_no, due_ms, id);

-- Bulks: many messages from one body or file. state is that of durable.BulkState. The owner with
-- the token expands rows until lease_ms; fence counts the owners. row_no and byte_pos are the
-- checkpoint: what comes before them is expanded. Bulks are claimed a producer at a time, so
-- that one with many of them holds back no other: bulks_work has the bulks of a producer that
-- have the same kind of work together, the longest due first.
CREATE TABLE IF NOT EXISTS bulks (
    id          BLOB    NOT NULL,
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
    reason      BLOB    NOT NULL,
    PRIMARY KEY (id)
);

CREATE INDEX IF NOT EXISTS bulks_state ON bulks (state, next_ms);
CREATE INDEX IF NOT EXISTS bulks_channel ON bulks (channel_no, id);
CREATE INDEX IF NOT EXISTS bulks_work ON bulks (state, paused, producer_no, next_ms, id);

-- The body of a bulk in pieces, cut at any byte. They are removed when the bulk is over.
CREATE TABLE IF NOT EXISTS bulk_chunks (
    bulk_id BLOB    NOT NULL,
    no      INTEGER NOT NULL,
    body    BLOB    NOT NULL,
    PRIMARY KEY (bulk_id, no)
);

-- The messages of one step of a bulk. Their IDs are in one block, first_id to last_id, that
-- contains no other message. complete is set once every job of the step is delivered.
CREATE TABLE IF NOT EXISTS bulk_steps (
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

CREATE TABLE IF NOT EXISTS bulk_errors (
    bulk_id BLOB    NOT NULL,
    row_no  INTEGER NOT NULL,
    reason  BLOB    NOT NULL,
    PRIMARY KEY (bulk_id, row_no)
) WITHOUT ROWID;

-- node and duration_ms, here and below, say which broker made an attempt and how long it took,
-- where that is known. worker is the worker that had a job: name;version, empty or NULL where it
-- did not say who it is.
CREATE TABLE IF NOT EXISTS deliveries (
    consumer_no INTEGER NOT NULL,
    message_id  BLOB    NOT NULL,
    attempts    INTEGER NOT NULL,
    at_ms       INTEGER NOT NULL,
    status_code INTEGER NOT NULL,
    node        INTEGER,
    duration_ms INTEGER,
    worker      BLOB,
    PRIMARY KEY (consumer_no, message_id)
) WITHOUT ROWID;

-- redriven_ms is when an open job was dead last, and redrives counts how often the broker itself
-- has redriven it. given_back counts how often pull workers gave the job back since it was
-- stored or redriven, without an attempt. leases_lost counts the leases that ended without a
-- word.
CREATE TABLE IF NOT EXISTS open_jobs (
    consumer_no INTEGER NOT NULL,
    message_id  BLOB    NOT NULL,
    priority    INTEGER NOT NULL,
    attempts    INTEGER NOT NULL,
    next_ms     INTEGER NOT NULL,
    changed_ms  INTEGER NOT NULL,
    status_code INTEGER NOT NULL,
    error       BLOB    NOT NULL,
    redriven_ms INTEGER NOT NULL DEFAULT 0,
    redrives    INTEGER NOT NULL DEFAULT 0,
    given_back  INTEGER NOT NULL DEFAULT 0,
    leases_lost INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (consumer_no, message_id)
) WITHOUT ROWID;

-- disposal is what became of a dead letter. fingerprint is the cause of its death, of package
-- cause; 0 for none of its own.
CREATE TABLE IF NOT EXISTS dead_jobs (
    consumer_no INTEGER NOT NULL,
    message_id  BLOB    NOT NULL,
    priority    INTEGER NOT NULL,
    attempts    INTEGER NOT NULL,
    died_ms     INTEGER NOT NULL,
    status_code INTEGER NOT NULL,
    reason      BLOB    NOT NULL,
    answer      BLOB    NOT NULL,
    reason_code INTEGER NOT NULL DEFAULT 0,
    redrives    INTEGER NOT NULL DEFAULT 0,
    disposal    INTEGER NOT NULL DEFAULT 0,
    leases_lost INTEGER NOT NULL DEFAULT 0,
    given_back  INTEGER NOT NULL DEFAULT 0,
    worker      BLOB    NOT NULL DEFAULT x'',
    fingerprint INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (consumer_no, message_id)
) WITHOUT ROWID;

CREATE INDEX IF NOT EXISTS dead_jobs_fingerprint ON dead_jobs (consumer_no, fingerprint, message_id);

-- How many dead letters of a consumer have one fingerprint: the number of rows of dead_jobs that
-- have it and are not removed from the DLQ, and the latest of them. A row goes with the last
-- one. See durable/deadgroup.go.
CREATE TABLE IF NOT EXISTS dead_groups (
    consumer_no INTEGER NOT NULL,
    fingerprint INTEGER NOT NULL,
    jobs        INTEGER NOT NULL,
    first_ms    INTEGER NOT NULL,
    last_ms     INTEGER NOT NULL,
    status_code INTEGER NOT NULL,
    sample      BLOB    NOT NULL,
    sample_id   BLOB    NOT NULL,
    PRIMARY KEY (consumer_no, fingerprint)
) WITHOUT ROWID;

-- at_ms is part of the key because a redriven job counts from one again. phase says how far a
-- failed attempt came.
CREATE TABLE IF NOT EXISTS attempts (
    consumer_no INTEGER NOT NULL,
    message_id  BLOB    NOT NULL,
    at_ms       INTEGER NOT NULL,
    attempt     INTEGER NOT NULL,
    status_code INTEGER NOT NULL,
    error       BLOB    NOT NULL,
    duration_ms INTEGER NOT NULL,
    answer      BLOB    NOT NULL,
    phase       INTEGER NOT NULL DEFAULT 0,
    node        INTEGER,
    worker      BLOB    NOT NULL DEFAULT x'',
    PRIMARY KEY (consumer_no, message_id, at_ms, attempt)
) WITHOUT ROWID;

-- The redrives of dead letters, each with the death that it ended.
CREATE TABLE IF NOT EXISTS redrives (
    consumer_no INTEGER NOT NULL,
    message_id  BLOB    NOT NULL,
    at_ms       INTEGER NOT NULL,
    how         INTEGER NOT NULL,
    died_ms     INTEGER NOT NULL,
    attempts    INTEGER NOT NULL,
    status_code INTEGER NOT NULL,
    reason_code INTEGER NOT NULL,
    reason      BLOB    NOT NULL,
    PRIMARY KEY (consumer_no, message_id, at_ms)
) WITHOUT ROWID;

-- Redrives of selected dead letters of a consumer. cursor_id is the progress: each letter up to
-- it that was meant is open again, and redriven counts them. busy is 1 while a broker has
-- something to do for it. replay_no is the replay with the letters, of a redrive to another
-- consumer. See durable/redriving.go.
CREATE TABLE IF NOT EXISTS redrivings (
    consumer_no     INTEGER NOT NULL,
    no              INTEGER NOT NULL,
    busy            INTEGER NOT NULL,
    state           INTEGER NOT NULL,
    has_fingerprint INTEGER NOT NULL,
    fingerprint     INTEGER NOT NULL,
    reasons         INTEGER NOT NULL,
    from_ms         INTEGER NOT NULL,
    to_ms           INTEGER NOT NULL,
    most            INTEGER NOT NULL,
    picked          INTEGER NOT NULL,
    rate            BLOB    NOT NULL,
    canary          INTEGER NOT NULL,
    target_no       INTEGER NOT NULL,
    replay_no       INTEGER NOT NULL,
    created_ms      INTEGER NOT NULL,
    state_ms        INTEGER NOT NULL,
    reason          BLOB    NOT NULL,
    matched         INTEGER NOT NULL,
    approximate     INTEGER NOT NULL,
    cursor_id       BLOB    NOT NULL,
    redriven        INTEGER NOT NULL,
    delivered       INTEGER NOT NULL,
    dead            INTEGER NOT NULL,
    stage           INTEGER NOT NULL,
    stage_ms        INTEGER NOT NULL,
    stage_jobs      INTEGER NOT NULL,
    stage_over      INTEGER NOT NULL,
    stage_again     INTEGER NOT NULL,
    PRIMARY KEY (consumer_no, no)
) WITHOUT ROWID;

CREATE INDEX IF NOT EXISTS redrivings_busy ON redrivings (busy, consumer_no, no);

-- The jobs of a redrive: with moved_ms 0 those that it is still to open, where it was asked for
-- single ones; else those that it has opened and that are not over. fingerprint is that of the
-- letter.
CREATE TABLE IF NOT EXISTS redriving_jobs (
    consumer_no INTEGER NOT NULL,
    no          INTEGER NOT NULL,
    message_id  BLOB    NOT NULL,
    moved_ms    INTEGER NOT NULL,
    stage       INTEGER NOT NULL,
    fingerprint INTEGER NOT NULL,
    PRIMARY KEY (consumer_no, no, message_id)
) WITHOUT ROWID;

-- The leases of pull jobs that a broker with an embedded Redis had when it stopped, until its
-- next start. See durable/keptlease.go.
CREATE TABLE IF NOT EXISTS kept_leases (
    consumer_no INTEGER NOT NULL,
    message_id  BLOB    NOT NULL,
    priority    INTEGER NOT NULL,
    attempt     INTEGER NOT NULL,
    token       BLOB    NOT NULL,
    until_ms    INTEGER NOT NULL,
    worker      BLOB    NOT NULL DEFAULT x'',
    PRIMARY KEY (consumer_no, message_id)
) WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS marks (
    consumer_no INTEGER NOT NULL,
    message_id  BLOB    NOT NULL,
    PRIMARY KEY (consumer_no)
) WITHOUT ROWID;

-- The books of consumers: sums of stretches of messages below the settled watermark, which do
-- not overlap. A stretch has the messages with after_id < ID <= through_id.
CREATE TABLE IF NOT EXISTS books (
    consumer_no INTEGER NOT NULL,
    after_id    BLOB    NOT NULL,
    through_id  BLOB    NOT NULL,
    accepted    INTEGER NOT NULL,
    filtered    INTEGER NOT NULL,
    delivered   INTEGER NOT NULL,
    PRIMARY KEY (consumer_no, after_id)
) WITHOUT ROWID;

-- What each producer stores: sums of the messages up to a mark in each channel. Without a bound
-- both tables are empty. See durable/stored.go.
CREATE TABLE IF NOT EXISTS stored_sums (
    producer_no INTEGER NOT NULL,
    messages    INTEGER NOT NULL,
    bytes       INTEGER NOT NULL,
    PRIMARY KEY (producer_no)
);

CREATE TABLE IF NOT EXISTS stored_marks (
    channel_no INTEGER NOT NULL,
    through_id BLOB    NOT NULL,
    PRIMARY KEY (channel_no)
);

-- What the channels with limits of their own on what is kept have: up to which message their
-- messages are counted, and what their limits have removed; and the counts, by stretches of
-- messages. Without such a channel both tables are empty. See durable/keeping.go.
CREATE TABLE IF NOT EXISTS kept_channels (
    channel_no INTEGER NOT NULL,
    counted_id BLOB    NOT NULL,
    removed_id BLOB    NOT NULL,
    removed    INTEGER NOT NULL DEFAULT 0,
    limit_code INTEGER NOT NULL DEFAULT 0,
    at_ms      INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (channel_no)
);

CREATE TABLE IF NOT EXISTS kept_stretches (
    channel_no INTEGER NOT NULL,
    through_id BLOB    NOT NULL,
    messages   INTEGER NOT NULL,
    bytes      INTEGER NOT NULL,
    PRIMARY KEY (channel_no, through_id)
) WITHOUT ROWID;

-- How fast adaptive consumers are delivered to, and the attempts of the present period. One row
-- for each consumer that was ever adaptive and had an attempt.
CREATE TABLE IF NOT EXISTS paces (
    consumer_no INTEGER NOT NULL,
    mode        INTEGER NOT NULL,
    rate        INTEGER NOT NULL,
    good        INTEGER NOT NULL,
    strained    INTEGER NOT NULL,
    since_ms    INTEGER NOT NULL,
    PRIMARY KEY (consumer_no)
) WITHOUT ROWID;

-- How long the jobs of a consumer are held because it asked for that (Retry-After), or refused
-- an access token that was just renewed. One row for each consumer that ever did, until what it
-- said is about no longer holds.
CREATE TABLE IF NOT EXISTS holds (
    consumer_no INTEGER NOT NULL,
    since_ms    INTEGER NOT NULL,
    until_ms    INTEGER NOT NULL,
    held_by     TEXT    NOT NULL,
    PRIMARY KEY (consumer_no)
) WITHOUT ROWID;

-- The last attempts of a consumer, as the brokers last wrote them: at most a second old. One row
-- for each consumer that ever had an attempt. claim_ms is when a worker of a pull consumer last
-- claimed, so a wiped Redis and a restart do not forget it.
CREATE TABLE IF NOT EXISTS consumer_facts (
    consumer_no INTEGER NOT NULL,
    attempt_ms  INTEGER NOT NULL,
    success_ms  INTEGER NOT NULL,
    status_code INTEGER NOT NULL,
    error       BLOB    NOT NULL,
    claim_ms    INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (consumer_no)
) WITHOUT ROWID;

-- Replays of consumers. no is from the sequence of consumers.no, so outcome tables take it as a
-- consumer. The messages are those with after_id < ID <= through_id; up to settled_id each job
-- has an outcome or a row in open_jobs, and jobs, bytes count them. matched is what was counted
-- at the begin. delivered and dead are written at the end. source_no and redrive_no are of a
-- replay of the letters of a redrive to another consumer.
CREATE TABLE IF NOT EXISTS replays (
    no          INTEGER NOT NULL,
    channel_no  INTEGER NOT NULL,
    consumer_no INTEGER NOT NULL,
    after_id    BLOB    NOT NULL,
    through_id  BLOB    NOT NULL,
    selected    INTEGER NOT NULL,
    filter      BLOB    NOT NULL,
    rate        BLOB    NOT NULL,
    state       INTEGER NOT NULL,
    created_ms  INTEGER NOT NULL,
    state_ms    INTEGER NOT NULL,
    removed_ms  INTEGER NOT NULL,
    matched     INTEGER NOT NULL,
    bytes       INTEGER NOT NULL,
    estimated   INTEGER NOT NULL,
    settled_id  BLOB    NOT NULL,
    jobs        INTEGER NOT NULL,
    job_bytes   INTEGER NOT NULL,
    delivered   INTEGER NOT NULL,
    dead        INTEGER NOT NULL,
    version     INTEGER NOT NULL,
    source_no   INTEGER NOT NULL DEFAULT 0,
    redrive_no  INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (no)
);

CREATE INDEX IF NOT EXISTS replays_consumer ON replays (channel_no, consumer_no, no);

-- A row for each job whose consumer has responses on, from its outcome on. due_ms is when a
-- broker has to do something about the row: the result is polled, the response is published to
-- the sender, or its body is dropped. It is the largest number where nothing is left to do.
CREATE TABLE IF NOT EXISTS exchanges (
    consumer_no  INTEGER NOT NULL,
    message_id   BLOB    NOT NULL,
    state        INTEGER NOT NULL,
    goes_back    INTEGER NOT NULL,
    attempt      INTEGER NOT NULL,
    status_code  INTEGER NOT NULL,
    truncated    INTEGER NOT NULL,
    delivered_ms INTEGER NOT NULL,
    received_ms  INTEGER NOT NULL,
    ended_ms     INTEGER NOT NULL,
    deadline_ms  INTEGER NOT NULL,
    keep_ms      INTEGER NOT NULL,
    due_ms       INTEGER NOT NULL,
    tries        INTEGER NOT NULL,
    url          BLOB    NOT NULL,
    reason       BLOB    NOT NULL,
    headers      BLOB    NOT NULL,
    body         BLOB    NOT NULL,
    PRIMARY KEY (consumer_no, message_id)
);

CREATE INDEX IF NOT EXISTS exchanges_due ON exchanges (consumer_no, due_ms, message_id);

-- A row for each response that waits because its producer has no reply URL: the deletion of the
-- producer, and a URL, find what waits for it.
CREATE TABLE IF NOT EXISTS awaiting_replies (
    consumer_no INTEGER NOT NULL,
    message_id  BLOB    NOT NULL,
    producer_no INTEGER NOT NULL,
    PRIMARY KEY (consumer_no, message_id)
) WITHOUT ROWID;

CREATE INDEX IF NOT EXISTS awaiting_replies_producer ON awaiting_replies (producer_no, consumer_no, message_id);

-- status_events are events that a producer wants to hear of, until a batch takes them over;
-- status_batches are batches on their way.
CREATE TABLE IF NOT EXISTS status_events (
    producer_no INTEGER NOT NULL,
    event_key   BLOB    NOT NULL,
    attempt     INTEGER NOT NULL,
    status_code INTEGER NOT NULL,
    reason_code INTEGER NOT NULL,
    PRIMARY KEY (producer_no, event_key)
) WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS status_batches (
    id          BLOB    NOT NULL,
    producer_no INTEGER NOT NULL,
    body        BLOB    NOT NULL,
    PRIMARY KEY (id)
) WITHOUT ROWID;

-- Alerts on their way: a row for each alert and place that it still has to reach.
CREATE TABLE IF NOT EXISTS alerts (
    sink        INTEGER NOT NULL,
    at_ms       INTEGER NOT NULL,
    consumer_no INTEGER NOT NULL,
    event       INTEGER NOT NULL,
    channel_id  BLOB    NOT NULL,
    consumer_id BLOB    NOT NULL,
    reason      BLOB    NOT NULL,
    tries       INTEGER NOT NULL,
    next_ms     INTEGER NOT NULL,
    PRIMARY KEY (sink, at_ms, consumer_no, event)
) WITHOUT ROWID;

-- States that were alerted and have not ended: the event, and the consumer or, of
-- channel.silent, the channel. See durable/alarm.go.
CREATE TABLE IF NOT EXISTS open_alarms (
    event      INTEGER NOT NULL,
    subject_no INTEGER NOT NULL,
    since_ms   INTEGER NOT NULL,
    PRIMARY KEY (event, subject_no)
) WITHOUT ROWID;

-- Of brokers before open_alarms. Nothing uses it any more.
CREATE TABLE IF NOT EXISTS dlq_growth (
    consumer_no INTEGER NOT NULL,
    since_ms    INTEGER NOT NULL,
    PRIMARY KEY (consumer_no)
) WITHOUT ROWID;

-- A channel with expectEvery has a row: from when on silence counts at the earliest, because it
-- is the time of a message, of the setting, or of the end of a pause. See durable/rhythm.go.
CREATE TABLE IF NOT EXISTS rhythms (
    channel_no INTEGER NOT NULL,
    since_ms   INTEGER NOT NULL,
    PRIMARY KEY (channel_no)
) WITHOUT ROWID;

-- The history: what brokers counted in slots of 10 seconds, a minute and ten minutes (step, in
-- seconds), of the whole (scope 0), of a channel (1) and of a consumer (2) with its number. A
-- row is what one broker counted since it started, in one slot, so it may be written again; a
-- reader adds the rows of all writers. acks and deliveries are encoded histograms. See
-- durable/historyrow.go.
CREATE TABLE IF NOT EXISTS history (
    scope      INTEGER NOT NULL,
    no         INTEGER NOT NULL,
    step       INTEGER NOT NULL,
    at_ms      INTEGER NOT NULL,
    writer     INTEGER NOT NULL,
    accepted   INTEGER NOT NULL,
    delivered  INTEGER NOT NULL,
    failed     INTEGER NOT NULL,
    dead       INTEGER NOT NULL,
    oldest_ms  INTEGER NOT NULL,
    acks       BLOB    NOT NULL,
    deliveries BLOB    NOT NULL,
    PRIMARY KEY (scope, no, step, at_ms, writer)
) WITHOUT ROWID;

CREATE INDEX IF NOT EXISTS history_at ON history (step, at_ms);

-- What happened: the start of a broker (kind 1), the first broker of a version (2), the change
-- of a policy (3) of a channel, or of a consumer. no is random, for two marks of one
-- millisecond.
CREATE TABLE IF NOT EXISTS history_marks (
    at_ms       INTEGER NOT NULL,
    no          INTEGER NOT NULL,
    kind        INTEGER NOT NULL,
    channel_no  INTEGER NOT NULL,
    consumer_no INTEGER NOT NULL,
    note        BLOB    NOT NULL,
    PRIMARY KEY (at_ms, no)
) WITHOUT ROWID;

-- The audit log: one entry for each change by somebody who manages the broker. Entries are only
-- added. Each has the hash of itself and of the entry before it; the head is the last one, whose
-- lock puts the brokers in a row. deed is the name of the change, so that a transaction which is
-- repeated writes one entry. See durable/audit.go.
CREATE TABLE IF NOT EXISTS audit (
    no           INTEGER NOT NULL,
    at_ms        INTEGER NOT NULL,
    who          BLOB    NOT NULL,
    from_address BLOB    NOT NULL,
    action       BLOB    NOT NULL,
    resource     BLOB    NOT NULL,
    before_json  BLOB    NOT NULL,
    after_json   BLOB    NOT NULL,
    hash         BLOB    NOT NULL,
    deed         BLOB    NOT NULL,
    PRIMARY KEY (no)
);

CREATE UNIQUE INDEX IF NOT EXISTS audit_deed ON audit (deed);
CREATE INDEX IF NOT EXISTS audit_time ON audit (at_ms);

CREATE TABLE IF NOT EXISTS audit_head (
    one   INTEGER NOT NULL,
    no    INTEGER NOT NULL,
    at_ms INTEGER NOT NULL,
    hash  BLOB    NOT NULL,
    PRIMARY KEY (one)
) WITHOUT ROWID;

INSERT INTO audit_head (one, no, at_ms, hash)
VALUES (1, 0, 0, x'')
ON CONFLICT (one) DO NOTHING;
