COMMIT;

CREATE TABLE IF NOT EXISTS migration_lease (
    no TINYINT UNSIGNED NOT NULL PRIMARY KEY,
    token BINARY(16) NOT NULL,
    expires_ms BIGINT NOT NULL
) ENGINE = InnoDB;

DELETE FROM alerts
WHERE sink = ?
  AND at_ms = ?
  AND consumer_no = ?
  AND event = ?;

DELETE FROM alerts
WHERE sink > 0
  AND at_ms < ?;

DELETE FROM api_tokens;

DELETE FROM api_tokens
WHERE expires_ms > 0
  AND expires_ms < ?;

DELETE FROM api_tokens
WHERE id = ?;

DELETE FROM attempts
WHERE consumer_no = ?
  AND message_id IN (?...);

DELETE FROM attempts
WHERE consumer_no = ?
  AND message_id IN (?...)
  AND at_ms < ?;

DELETE FROM awaiting_replies
WHERE consumer_no = ?
  AND message_id IN (?...);

DELETE FROM books;

DELETE FROM books
WHERE consumer_no = ?;

DELETE FROM books
WHERE consumer_no = ?
  AND through_id <= ?;

DELETE FROM books
WHERE through_id > ?;

DELETE FROM books
WHERE through_id > ?
  AND consumer_no = ?;

DELETE FROM bulk_chunks
WHERE bulk_id = ?
  AND no < ?;

DELETE FROM bulk_errors
WHERE bulk_id = ?
  AND row_no <= ?;

DELETE FROM bulk_steps
WHERE bulk_id = ?
  AND first_id <= ?;

DELETE FROM bulks
WHERE id = ?;

DELETE FROM consumer_facts
WHERE consumer_no = ?;

DELETE FROM dead_groups
WHERE consumer_no = ?
  AND fingerprint = ?
  AND jobs <= 0;

DELETE FROM dead_jobs
WHERE consumer_no = ?
  AND message_id IN (?...);

DELETE FROM deliveries
WHERE consumer_no = ?
  AND message_id > ?
  AND message_id <= ?
  AND message_id NOT IN (?...);

DELETE FROM deliveries
WHERE consumer_no = ?
  AND message_id IN (?...);

DELETE FROM exchanges
WHERE consumer_no = ?
  AND message_id IN (?...);

DELETE FROM expiring
WHERE expires_ms = ?
  AND channel_no = ?
  AND id IN (?...);

DELETE FROM failures
WHERE consumer_no = ?;

DELETE FROM history
WHERE step = ?
  AND at_ms = ?;

DELETE FROM history
WHERE step = ?
  AND at_ms = ?
  AND writer <> 0;

DELETE FROM history_marks
WHERE at_ms <= ?;

DELETE FROM holds
WHERE consumer_no = ?;

DELETE FROM idempotency_keys
WHERE channel_no = ?
  AND msg_key = ?
  AND id = ?;

DELETE FROM idempotency_keys
WHERE id <= ?;

DELETE FROM kept_leases;

DELETE FROM kept_stretches
WHERE channel_no = ?
  AND through_id <= ?;

DELETE FROM marks;

DELETE FROM marks
WHERE consumer_no = ?;

DELETE FROM message_keys
WHERE channel_no = ?
  AND msg_key = ?
  AND id = ?;

DELETE FROM message_keys
WHERE channel_no = ?
  AND msg_key IN (?...);

DELETE FROM messages
WHERE channel_no = ?
  AND id > ?
  AND id <= ?
  AND id NOT IN (?...);

DELETE FROM open_alarms
WHERE event = ?
  AND subject_no = ?;

DELETE FROM open_jobs
WHERE consumer_no = ?
  AND message_id IN (?...);

DELETE FROM open_jobs
WHERE consumer_no = ?
  AND message_id IN (?...)
  AND (
    EXISTS (SELECT 1 FROM deliveries d WHERE d.consumer_no = open_jobs.consumer_no AND d.message_id = open_jobs.message_id)
    OR EXISTS (SELECT 1 FROM dead_jobs x WHERE x.consumer_no = open_jobs.consumer_no AND x.message_id = open_jobs.message_id)
  );

DELETE FROM ordered
WHERE channel_no = ?
  AND message_id IN (?...);

DELETE FROM ordering_keys
WHERE channel_no = ?
  AND digest IN (?...)
  AND last_id IN (?...);

DELETE FROM paces
WHERE consumer_no = ?;

DELETE FROM places
WHERE channel_id = ?
  AND store = ?
  AND at_ms = ?;

DELETE FROM prioritised
WHERE channel_no = ?
  AND inv_priority = ?
  AND id > ?
  AND id <= ?
  AND id NOT IN (?...);

DELETE FROM receipts
WHERE id <= ?;

DELETE FROM redrives
WHERE consumer_no = ?
  AND message_id IN (?...);

DELETE FROM redriving_jobs
WHERE consumer_no = ?;

DELETE FROM redriving_jobs
WHERE consumer_no = ?
  AND no = ?
  AND message_id IN (?...);

DELETE FROM redriving_jobs
WHERE consumer_no = ?
  AND no = ?
  AND moved_ms = 0;

DELETE FROM redrivings
WHERE consumer_no = ?;

DELETE FROM redrivings
WHERE consumer_no = ?
  AND no <= ?
  AND busy = 0
  AND state >= 3;

DELETE FROM replays
WHERE channel_no = ?
  AND consumer_no = ?
  AND no < ?
  AND state >= 2
  AND NOT EXISTS (SELECT 1 FROM deliveries v WHERE v.consumer_no = replays.no)
  AND NOT EXISTS (SELECT 1 FROM dead_jobs d WHERE d.consumer_no = replays.no)
  AND NOT EXISTS (SELECT 1 FROM open_jobs o WHERE o.consumer_no = replays.no)
  AND NOT EXISTS (SELECT 1 FROM attempts a WHERE a.consumer_no = replays.no);

DELETE FROM rhythms
WHERE channel_no = ?;

DELETE FROM scheduled
WHERE id = ?;

DELETE FROM settings
WHERE name IN (?...);

DELETE FROM sqs_keys
WHERE channel_no = ?;

DELETE FROM sqs_keys
WHERE id = ?
  AND channel_no = ?;

DELETE FROM status_batches
WHERE id = ?;

DELETE FROM status_events
WHERE producer_no = ?
  AND event_key IN (?...);

INSERT IGNORE INTO alerts (
    sink,
    at_ms,
    consumer_no,
    event,
    channel_id,
    consumer_id,
    reason,
    tries,
    next_ms
)
VALUES (?, ?, ?, ?, ?, ?, ?, 0, 0);

INSERT IGNORE INTO dead_jobs (
    consumer_no,
    message_id,
    priority,
    attempts,
    died_ms,
    status_code,
    reason,
    answer,
    reason_code,
    redrives,
    disposal,
    leases_lost,
    given_back,
    worker,
    fingerprint
)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

INSERT IGNORE INTO exchanges (
    consumer_no,
    message_id,
    state,
    goes_back,
    attempt,
    status_code,
    truncated,
    delivered_ms,
    received_ms,
    ended_ms,
    deadline_ms,
    keep_ms,
    due_ms,
    tries,
    url,
    reason,
    headers,
    body
)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

INSERT IGNORE INTO expiring (
    expires_ms,
    channel_no,
    id
)
SELECT
    m.ttl_ms + ?,
    m.channel_no,
    m.id
FROM consumers k
JOIN messages m ON m.channel_no = k.channel_no
WHERE k.no = ?
  AND m.id IN (?...)
  AND m.ttl_ms > 0;

INSERT IGNORE INTO migration_lease (
    no,
    token,
    expires_ms
)
VALUES (0, '', 0);

INSERT IGNORE INTO open_alarms (
    event,
    subject_no,
    since_ms
)
VALUES (?, ?, ?);

INSERT IGNORE INTO redrives (
    consumer_no,
    message_id,
    at_ms,
    how,
    died_ms,
    attempts,
    status_code,
    reason_code,
    reason
)
SELECT
    consumer_no,
    message_id,
    ?,
    ?,
    died_ms,
    attempts,
    status_code,
    reason_code,
    reason
FROM dead_jobs
WHERE consumer_no = ?
  AND message_id IN (?...);

INSERT IGNORE INTO settings (
    name,
    value
)
VALUES (?, ?);

INSERT IGNORE INTO status_events (
    producer_no,
    event_key,
    attempt,
    status_code,
    reason_code
)
VALUES (?, ?, ?, ?, ?);

INSERT INTO api_tokens (
    id,
    name,
    scopes,
    digest,
    key_id,
    created_ms,
    expires_ms,
    used_ms,
    version
)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?);

INSERT INTO attempts (
    consumer_no,
    message_id,
    at_ms,
    attempt,
    status_code,
    error,
    duration_ms,
    answer,
    phase,
    node,
    worker
)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON DUPLICATE KEY UPDATE attempt = attempt;

INSERT INTO audit (
    no,
    at_ms,
    who,
    from_address,
    action,
    resource,
    before_json,
    after_json,
    hash,
    deed
)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

INSERT INTO awaiting_replies (
    consumer_no,
    message_id,
    producer_no
)
VALUES (?, ?, ?)
ON DUPLICATE KEY UPDATE consumer_no = consumer_no;

INSERT INTO books (
    consumer_no,
    after_id,
    through_id,
    accepted,
    filtered,
    delivered
)
VALUES (?, ?, ?, ?, ?, ?);

INSERT INTO bulk_chunks (
    bulk_id,
    no,
    body
)
VALUES (?, ?, ?);

INSERT INTO bulk_errors (
    bulk_id,
    row_no,
    reason
)
VALUES (?, ?, ?);

INSERT INTO bulk_steps (
    bulk_id,
    first_id,
    last_id,
    audience,
    messages,
    jobs,
    complete,
    delivered
)
VALUES (?, ?, ?, ?, ?, ?, 0, 0);

INSERT INTO bulks (
    id,
    owner,
    fence,
    channel_no,
    producer_no,
    state,
    paused,
    spec,
    chunks,
    bytes,
    total,
    row_no,
    byte_pos,
    published,
    rejected,
    duplicates,
    speed,
    tries,
    next_ms,
    lease_ms,
    changed_ms,
    reason
)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

INSERT INTO channel_groups (
    no,
    id,
    name,
    max_channels,
    settings,
    changed_ms,
    version
)
VALUES (?, ?, ?, ?, ?, ?, ?);

INSERT INTO channels (
    no,
    id,
    name,
    token,
    audience,
    changed_ms,
    version
)
VALUES (?, ?, ?, ?, ?, ?, ?);

INSERT INTO clock (
    no,
    ms,
    ahead_ms,
    steps,
    beat,
    history
)
VALUES (0, 0, 0, 0, 0, 0)
ON DUPLICATE KEY UPDATE no = no;

INSERT INTO consumer_facts (
    consumer_no,
    attempt_ms,
    success_ms,
    status_code,
    error,
    claim_ms
)
VALUES (?, ?, ?, ?, ?, ?)
ON DUPLICATE KEY UPDATE
    status_code = IF(VALUES(attempt_ms) >= attempt_ms, VALUES(status_code), status_code),
    error = IF(VALUES(attempt_ms) >= attempt_ms, VALUES(error), error),
    success_ms = GREATEST(success_ms, VALUES(success_ms)),
    claim_ms = GREATEST(claim_ms, VALUES(claim_ms)),
    attempt_ms = GREATEST(attempt_ms, VALUES(attempt_ms));

INSERT INTO consumers (
    no,
    channel_no,
    position,
    id,
    name,
    token,
    callback_url,
    type,
    protocol,
    policy,
    changed_ms,
    version,
    state_ms,
    since_id,
    since_policy
)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

INSERT INTO dead_groups (
    consumer_no,
    fingerprint,
    jobs,
    first_ms,
    last_ms,
    status_code,
    sample,
    sample_id
)
VALUES (?, ?, ?, ?, ?, ?, ?, ?)
ON DUPLICATE KEY UPDATE
    jobs = jobs + VALUES(jobs),
    first_ms = LEAST(first_ms, VALUES(first_ms)),
    last_ms = GREATEST(last_ms, VALUES(last_ms)),
    status_code = VALUES(status_code),
    sample = VALUES(sample),
    sample_id = VALUES(sample_id);

INSERT INTO deliveries (consumer_no, message_id, attempts, at_ms, status_code, node, duration_ms) VALUES (?,?,?,?,?,?,?) ON DUPLICATE KEY UPDATE attempts = attempts;

INSERT INTO deliveries (consumer_no, message_id, attempts, at_ms, status_code, node, duration_ms, worker) VALUES (?,?,?,?,?,?,?,?) ON DUPLICATE KEY UPDATE attempts = attempts;

INSERT INTO expiring (
    expires_ms,
    channel_no,
    id
)
VALUES (?, ?, ?)
ON DUPLICATE KEY UPDATE id = VALUES(id);

INSERT INTO expiring (expires_ms, channel_no, id) VALUES (?,?,?);

INSERT INTO failures (
    consumer_no,
    times
)
VALUES (?, x'')
ON DUPLICATE KEY UPDATE consumer_no = consumer_no;

INSERT INTO history (
    scope,
    no,
    step,
    at_ms,
    writer,
    accepted,
    delivered,
    failed,
    dead,
    oldest_ms,
    acks,
    deliveries
)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON DUPLICATE KEY UPDATE
    accepted = VALUES(accepted),
    delivered = VALUES(delivered),
    failed = VALUES(failed),
    dead = VALUES(dead),
    oldest_ms = VALUES(oldest_ms),
    acks = VALUES(acks),
    deliveries = VALUES(deliveries);

INSERT INTO history_marks (
    at_ms,
    no,
    kind,
    channel_no,
    consumer_no,
    note
)
VALUES (?, ?, ?, ?, ?, ?)
ON DUPLICATE KEY UPDATE no = no;

INSERT INTO holds (
    consumer_no,
    since_ms,
    until_ms,
    held_by
)
VALUES (?, 0, 0, '')
ON DUPLICATE KEY UPDATE consumer_no = consumer_no;

INSERT INTO idempotency_keys (
    channel_no,
    msg_key,
    id,
    fingerprint,
    terms
)
VALUES (?, ?, ?, ?, ?);

INSERT INTO idempotency_keys (channel_no, msg_key, id, fingerprint, terms) VALUES (?,?,?,?,?);

INSERT INTO kept_channels (
    channel_no,
    counted_id,
    removed_id
)
VALUES (?, ?, ?)
ON DUPLICATE KEY UPDATE channel_no = channel_no;

INSERT INTO kept_leases (
    consumer_no,
    message_id,
    priority,
    attempt,
    token,
    until_ms,
    worker
)
VALUES (?, ?, ?, ?, ?, ?, ?);

INSERT INTO kept_stretches (
    channel_no,
    through_id,
    messages,
    bytes
)
VALUES (?, ?, ?, ?);

INSERT INTO marks (
    consumer_no,
    message_id
)
VALUES (?, ?)
ON DUPLICATE KEY UPDATE message_id = GREATEST(message_id, VALUES(message_id));

INSERT INTO message_keys (
    channel_no,
    msg_key,
    id
)
VALUES (?, ?, ?);

INSERT INTO message_keys (channel_no, msg_key, id) VALUES (?,?,?);

INSERT INTO messages (channel_no, id, producer_no, priority, audience, msg_key, content_type, headers, payload) VALUES (?,?,?,?,(SELECT c.audience FROM channels c JOIN nodes n ON n.no = ? JOIN clock k ON k.no = 0 WHERE c.no = ? AND c.audience = ? AND c.shape = ? AND c.paused = 0 AND n.token = ? AND n.least_version <= ? AND LEAST(n.expires_ms - 1, ?) >= GREATEST(k.ms, UNIX_TIMESTAMP(SYSDATE(3)) * 1000, LEAST(UNIX_TIMESTAMP(SYSDATE(3)) * 1000 + k.ahead_ms, k.ms + 5000))),?,?,?,?);

INSERT INTO messages (channel_no, id, producer_no, priority, audience, msg_key, content_type, headers, payload, addressed, left_out) VALUES (?,?,?,?,(SELECT c.audience FROM channels c JOIN nodes n ON n.no = ? JOIN clock k ON k.no = 0 WHERE c.no = ? AND c.audience = ? AND c.shape = ? AND c.paused = 0 AND n.token = ? AND n.least_version <= ? AND LEAST(n.expires_ms - 1, ?) >= GREATEST(k.ms, UNIX_TIMESTAMP(SYSDATE(3)) * 1000, LEAST(UNIX_TIMESTAMP(SYSDATE(3)) * 1000 + k.ahead_ms, k.ms + 5000))),?,?,?,?,?,?);

INSERT INTO messages (channel_no, id, producer_no, priority, audience, msg_key, content_type, headers, payload, ttl_ms) VALUES (?,?,?,?,(SELECT c.audience FROM channels c JOIN nodes n ON n.no = ? JOIN clock k ON k.no = 0 WHERE c.no = ? AND c.audience = ? AND c.shape = ? AND c.paused = 0 AND n.token = ? AND n.least_version <= ? AND LEAST(n.expires_ms - 1, ?) >= GREATEST(k.ms, UNIX_TIMESTAMP(SYSDATE(3)) * 1000, LEAST(UNIX_TIMESTAMP(SYSDATE(3)) * 1000 + k.ahead_ms, k.ms + 5000))),?,?,?,?,?);

INSERT INTO messages (channel_no, id, producer_no, priority, audience, msg_key, content_type, headers, payload, ttl_ms, addressed, left_out) VALUES (?,?,?,?,(SELECT c.audience FROM channels c JOIN nodes n ON n.no = ? JOIN clock k ON k.no = 0 WHERE c.no = ? AND c.audience = ? AND c.shape = ? AND c.paused = 0 AND n.token = ? AND n.least_version <= ? AND LEAST(n.expires_ms - 1, ?) >= GREATEST(k.ms, UNIX_TIMESTAMP(SYSDATE(3)) * 1000, LEAST(UNIX_TIMESTAMP(SYSDATE(3)) * 1000 + k.ahead_ms, k.ms + 5000))),?,?,?,?,?,?,?);

INSERT INTO nodes (
    no,
    name,
    token,
    expires_ms,
    least_version
)
SELECT
    ?,
    ?,
    ?,
    ?,
    COALESCE(MAX(least_version), 0)
FROM nodes;

INSERT INTO open_jobs (
    consumer_no,
    message_id,
    priority,
    attempts,
    next_ms,
    changed_ms,
    status_code,
    error,
    given_back
)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
ON DUPLICATE KEY UPDATE
    next_ms = IF(VALUES(attempts) >= attempts, VALUES(next_ms), next_ms),
    changed_ms = IF(VALUES(attempts) >= attempts, VALUES(changed_ms), changed_ms),
    given_back = IF(VALUES(attempts) >= attempts, given_back + 1, given_back),
    attempts = GREATEST(attempts, VALUES(attempts));

INSERT INTO open_jobs (
    consumer_no,
    message_id,
    priority,
    attempts,
    next_ms,
    changed_ms,
    status_code,
    error,
    leases_lost
)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
ON DUPLICATE KEY UPDATE
    next_ms = IF(VALUES(attempts) > attempts, VALUES(next_ms), next_ms),
    changed_ms = IF(VALUES(attempts) > attempts, VALUES(changed_ms), changed_ms),
    status_code = IF(VALUES(attempts) > attempts, VALUES(status_code), status_code),
    error = IF(VALUES(attempts) > attempts, VALUES(error), error),
    leases_lost = IF(VALUES(attempts) > attempts, leases_lost + VALUES(leases_lost), leases_lost),
    attempts = GREATEST(attempts, VALUES(attempts));

INSERT INTO open_jobs (
    consumer_no,
    message_id,
    priority,
    attempts,
    next_ms,
    changed_ms,
    status_code,
    error,
    redriven_ms,
    redrives,
    leases_lost,
    given_back
)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON DUPLICATE KEY UPDATE
    attempts = VALUES(attempts),
    next_ms = VALUES(next_ms),
    changed_ms = VALUES(changed_ms),
    status_code = VALUES(status_code),
    error = VALUES(error),
    redriven_ms = VALUES(redriven_ms),
    redrives = VALUES(redrives),
    leases_lost = VALUES(leases_lost),
    given_back = VALUES(given_back);

INSERT INTO ordered (channel_no, message_id, digest, prev_id) VALUES (?,?,?,(SELECT k.prev_id FROM ordering_keys k WHERE k.channel_no = ? AND k.digest = ?));

INSERT INTO ordering_keys (channel_no, digest, last_id, prev_id) VALUES (?,?,?,?) ON DUPLICATE KEY UPDATE prev_id = last_id, last_id = VALUES(last_id);

INSERT INTO paces (
    consumer_no,
    mode,
    rate,
    good,
    strained,
    since_ms
)
VALUES (?, 0, 0, 0, 0, ?)
ON DUPLICATE KEY UPDATE consumer_no = consumer_no;

INSERT INTO places (
    channel_id,
    store,
    at_ms
)
VALUES (?, ?, ?)
ON DUPLICATE KEY UPDATE store = store;

INSERT INTO prioritised (channel_no, inv_priority, id, audience) VALUES (?,?,?,?);

INSERT INTO prioritised (channel_no, inv_priority, id, audience, addressed, left_out) VALUES (?,?,?,?,?,?);

INSERT INTO producers (
    no,
    id,
    name,
    token,
    changed_ms,
    version
)
VALUES (?, ?, ?, ?, ?, ?);

INSERT INTO proofs (
    no,
    writes
)
VALUES (?, 1)
ON DUPLICATE KEY UPDATE writes = writes + 1;

INSERT INTO receipts (
    id,
    channel_no,
    message,
    reason
)
VALUES (?, ?, ?, ?)
ON DUPLICATE KEY UPDATE reason = reason;

INSERT INTO redriving_jobs (
    consumer_no,
    no,
    message_id,
    moved_ms,
    stage,
    fingerprint
)
VALUES (?, ?, ?, ?, ?, ?)
ON DUPLICATE KEY UPDATE
    moved_ms = VALUES(moved_ms),
    stage = VALUES(stage),
    fingerprint = VALUES(fingerprint);

INSERT INTO redrivings (
    consumer_no,
    no,
    has_fingerprint,
    fingerprint,
    reasons,
    from_ms,
    to_ms,
    most,
    picked,
    rate,
    canary,
    target_no,
    created_ms,
    matched,
    approximate,
    busy,
    state,
    replay_no,
    state_ms,
    reason,
    cursor_id,
    redriven,
    delivered,
    dead,
    stage,
    stage_ms,
    stage_jobs,
    stage_over,
    stage_again
)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

INSERT INTO replays (
    no,
    channel_no,
    consumer_no,
    after_id,
    through_id,
    selected,
    filter,
    rate,
    state,
    created_ms,
    state_ms,
    removed_ms,
    matched,
    bytes,
    estimated,
    settled_id,
    jobs,
    job_bytes,
    delivered,
    dead,
    source_no,
    redrive_no,
    version
)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

INSERT INTO rhythms (
    channel_no,
    since_ms
)
VALUES (?, ?)
ON DUPLICATE KEY UPDATE since_ms = GREATEST(since_ms, VALUES(since_ms));

INSERT INTO scheduled (
    id,
    channel_no,
    producer_no,
    status,
    due_ms,
    occurrence,
    msg_key,
    recurrence,
    priority,
    ttl_ms,
    content_type,
    headers,
    payload,
    addressed,
    delay_ms
)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

INSERT INTO secrets (
    name,
    secret
)
VALUES (?, ?)
ON DUPLICATE KEY UPDATE secret = secret;

INSERT INTO settings (
    name,
    value
)
VALUES (?, ?)
ON DUPLICATE KEY UPDATE value = GREATEST(value, VALUES(value));

INSERT INTO settings (
    name,
    value
)
VALUES (?, ?)
ON DUPLICATE KEY UPDATE value = VALUES(value);

INSERT INTO settings (
    name,
    value
)
VALUES (?, ?)
ON DUPLICATE KEY UPDATE value = value;

INSERT INTO sqs_keys (
    id,
    channel_no,
    secret,
    created_ms
)
VALUES (?, ?, ?, ?);

INSERT INTO status_batches (
    id,
    producer_no,
    body
)
VALUES (?, ?, ?);

INSERT INTO stored_marks (
    channel_no,
    through_id
)
VALUES (?, ?)
ON DUPLICATE KEY UPDATE through_id = through_id;

INSERT INTO stored_sums (
    producer_no,
    messages,
    bytes
)
VALUES (?, ?, ?)
ON DUPLICATE KEY UPDATE
    messages = messages + VALUES(messages),
    bytes = bytes + VALUES(bytes);

ROLLBACK;

ROLLBACK TO SAVEPOINT row_set;

SAVEPOINT row_set;

SELECT
    0 AS kind,
    COUNT(*) AS jobs,
    MIN(o.id) AS oldest
FROM (
    SELECT message_id AS id
    FROM open_jobs
    WHERE consumer_no = ?
    ORDER BY message_id
    LIMIT ?
) o
WHERE NOT EXISTS (SELECT 1 FROM deliveries d WHERE d.consumer_no = ? AND d.message_id = o.id)
  AND NOT EXISTS (SELECT 1 FROM dead_jobs x WHERE x.consumer_no = ? AND x.message_id = o.id)
UNION ALL
SELECT
    1,
    COUNT(*),
    MIN(m.id)
FROM (
    SELECT id
    FROM messages
    WHERE channel_no = ?
      AND id > ?
      AND (audience > ? OR id > ?)
  AND (addressed IS NULL OR SUBSTR(HEX(addressed), ?, 1) IN (?...))
  AND NOT (left_out IS NOT NULL AND SUBSTR(HEX(left_out), ?, 1) IN (?...))
    ORDER BY id
    LIMIT ?
) m
WHERE NOT EXISTS (SELECT 1 FROM deliveries d WHERE d.consumer_no = ? AND d.message_id = m.id)
  AND NOT EXISTS (SELECT 1 FROM open_jobs o WHERE o.consumer_no = ? AND o.message_id = m.id)
  AND NOT EXISTS (SELECT 1 FROM dead_jobs x WHERE x.consumer_no = ? AND x.message_id = m.id)
UNION ALL
SELECT
    2,
    COUNT(*),
    MIN(b.id)
FROM (
    SELECT id
    FROM messages
    WHERE channel_no = ?
      AND id > ?
      AND (audience > ? OR id > ?)
  AND (addressed IS NULL OR SUBSTR(HEX(addressed), ?, 1) IN (?...))
  AND NOT (left_out IS NOT NULL AND SUBSTR(HEX(left_out), ?, 1) IN (?...))
    ORDER BY id
    LIMIT 1 OFFSET ?
) b
UNION ALL
SELECT
    3,
    COUNT(*),
    MIN(x.message_id)
FROM (
    SELECT message_id
    FROM dead_jobs
    WHERE consumer_no = ?
      AND disposal <> 2
    LIMIT ?
) x;

SELECT
    COALESCE(MAX(ms), 0),
    COALESCE(MAX(ahead_ms), 0),
    COALESCE(MAX(steps), 0),
    COALESCE(MAX(beat), 0),
    COALESCE(MAX(history), 0),
    CAST(UNIX_TIMESTAMP(SYSDATE(3)) * 1000 AS SIGNED)
FROM clock
WHERE no = 0;

SELECT
    COALESCE(MAX(no), 0),
    COALESCE(SUM(state < 3), 0)
FROM redrivings
WHERE consumer_no = ?;

SELECT
    COALESCE(SUM(CASE WHEN phase = 4 THEN 1 ELSE 0 END), 0),
    COALESCE(SUM(CASE WHEN phase = 3 THEN 1 ELSE 0 END), 0)
FROM attempts
WHERE consumer_no = ?
  AND message_id = ?
  AND at_ms > (
      SELECT COALESCE(MAX(r.at_ms), 0)
      FROM redrives r
      WHERE r.consumer_no = ?
        AND r.message_id = ?
        AND r.how <> 2
  );

SELECT
    COALESCE(SUM(accepted), 0),
    COALESCE(SUM(filtered), 0),
    COALESCE(SUM(delivered), 0)
FROM books
WHERE consumer_no = ?
  AND after_id >= ?
  AND after_id < ?
  AND through_id <= ?;

SELECT
    COUNT(*),
    COALESCE(SUM((left_out IS NOT NULL AND SUBSTR(HEX(left_out), ?, 1) IN (?...))), 0)
FROM messages
WHERE channel_no = ?
  AND id > ?
  AND id <= ?
  AND (audience > ? OR id > ?)
  AND (addressed IS NULL OR SUBSTR(HEX(addressed), ?, 1) IN (?...))
LOCK IN SHARE MODE;

SELECT
    COUNT(*),
    COALESCE(SUM((m.left_out IS NOT NULL AND SUBSTR(HEX(m.left_out), ?, 1) IN (?...))), 0),
    COALESCE(SUM(NOT (m.left_out IS NOT NULL AND SUBSTR(HEX(m.left_out), ?, 1) IN (?...)) AND v.message_id IS NULL AND d.message_id IS NULL AND o.message_id IS NULL), 0)
FROM messages m
LEFT JOIN deliveries v
    ON v.consumer_no = ?
   AND v.message_id = m.id
LEFT JOIN dead_jobs d
    ON d.consumer_no = ?
   AND d.message_id = m.id
LEFT JOIN open_jobs o
    ON o.consumer_no = ?
   AND o.message_id = m.id
WHERE m.channel_no = ?
  AND m.id > ?
  AND m.id <= ?
  AND (m.audience > ? OR m.id > ?)
  AND (m.addressed IS NULL OR SUBSTR(HEX(m.addressed), ?, 1) IN (?...));

SELECT
    COUNT(*),
    COALESCE(SUM(d.message_id <= ?), 0)
    FROM dead_jobs d
    WHERE d.consumer_no = ?
      AND d.message_id > ?
      AND d.message_id <= ?
      AND NOT EXISTS (SELECT 1 FROM deliveries v WHERE v.consumer_no = d.consumer_no AND v.message_id = d.message_id);

SELECT
    COUNT(*),
    COALESCE(SUM(d.reason_code = ?), 0)
    FROM dead_jobs d
    WHERE d.consumer_no = ?
      AND d.message_id > ?
      AND d.message_id <= ?
      AND NOT EXISTS (SELECT 1 FROM deliveries v WHERE v.consumer_no = d.consumer_no AND v.message_id = d.message_id);

SELECT
    COUNT(*),
    COALESCE(SUM(e.disposal <> 2 AND e.died_ms >= ? AND e.died_ms <= ? AND ((1 << e.reason_code) & ?) <> 0), 0)
FROM (
    SELECT
        d.disposal,
        d.died_ms,
        d.reason_code
    FROM dead_jobs d
    WHERE d.consumer_no = ?
      AND d.fingerprint = ?
    ORDER BY d.message_id
    LIMIT ?
) e;

SELECT
    COUNT(*),
    COALESCE(SUM(e.disposal <> 2 AND e.died_ms >= ? AND e.died_ms <= ? AND ((1 << e.reason_code) & ?) <> 0), 0)
FROM (
    SELECT
        d.disposal,
        d.died_ms,
        d.reason_code
    FROM dead_jobs d
    WHERE d.consumer_no = ?
    ORDER BY d.message_id
    LIMIT ?
) e;

SELECT
    COUNT(*),
    COALESCE(SUM(member_state = 'ONLINE'), 0),
    COALESCE(SUM(member_state = 'ONLINE' AND member_id = @@GLOBAL.server_uuid), 0)
FROM performance_schema.replication_group_members;

SELECT
    COUNT(*),
    COALESCE(SUM(o.message_id <= ?), 0)
    FROM open_jobs o
    WHERE o.consumer_no = ?
      AND o.message_id > ?
      AND o.message_id <= ?
      AND NOT EXISTS (SELECT 1 FROM deliveries v WHERE v.consumer_no = o.consumer_no AND v.message_id = o.message_id)
      AND NOT EXISTS (SELECT 1 FROM dead_jobs d WHERE d.consumer_no = o.consumer_no AND d.message_id = o.message_id);

SELECT
    COUNT(*),
    COALESCE(SUM(version % 1000000007), 0)
FROM api_tokens;

SELECT
    COUNT(*),
    COALESCE(SUM(version % 1000000007), 0)
FROM channel_groups;

SELECT
    COUNT(*),
    COALESCE(SUM(version % 1000000007), 0)
FROM channels;

SELECT
    COUNT(*),
    COALESCE(SUM(version % 1000000007), 0)
FROM consumers;

SELECT
    COUNT(*),
    COALESCE(SUM(version % 1000000007), 0)
FROM producers;

SELECT
    COUNT(*),
    MAX(message_id)
FROM (
    SELECT d.message_id
FROM dead_jobs d
WHERE d.consumer_no = ?
  AND d.fingerprint = ?
  AND d.message_id >= ?
    ORDER BY d.message_id
    LIMIT ?
) e;

SELECT
    COUNT(*),
    MAX(message_id)
FROM (
    SELECT d.message_id
FROM dead_jobs d
WHERE d.consumer_no = ?
  AND d.message_id >= ?
    ORDER BY d.message_id
    LIMIT ?
) e;

SELECT
    COUNT(*),
    MIN(message_id)
FROM (
    SELECT d.message_id
FROM dead_jobs d
WHERE d.consumer_no = ?
  AND d.fingerprint = ?
  AND d.message_id <= ?
    ORDER BY d.message_id DESC
    LIMIT ?
) e;

SELECT
    COUNT(*),
    MIN(message_id)
FROM (
    SELECT d.message_id
FROM dead_jobs d
WHERE d.consumer_no = ?
  AND d.message_id <= ?
    ORDER BY d.message_id DESC
    LIMIT ?
) e;

SELECT
    MAX(m.id),
    COUNT(*),
    COALESCE(SUM(NOT ((m.audience > ? OR m.id > ?)
  AND (m.addressed IS NULL OR SUBSTR(HEX(m.addressed), ?, 1) IN (?...))
  AND NOT (m.left_out IS NOT NULL AND SUBSTR(HEX(m.left_out), ?, 1) IN (?...))) OR v.message_id IS NOT NULL), 0)
FROM (
    SELECT
        id,
        audience,
        addressed,
        left_out
    FROM messages
    WHERE channel_no = ?
      AND priority = ?
      AND id > ?
      AND id <= ?
    ORDER BY id
    LIMIT ?
    LOCK IN SHARE MODE
) m
LEFT JOIN deliveries v
    ON v.consumer_no = ?
   AND v.message_id = m.id;

SELECT
    MAX(m.id),
    COUNT(*),
    COALESCE(SUM(NOT ((m.audience > ? OR m.id > ?)
  AND (m.addressed IS NULL OR SUBSTR(HEX(m.addressed), ?, 1) IN (?...))
  AND NOT (m.left_out IS NOT NULL AND SUBSTR(HEX(m.left_out), ?, 1) IN (?...))) OR v.message_id IS NOT NULL), 0)
FROM (
    SELECT
        id,
        audience,
        addressed,
        left_out
    FROM prioritised
    WHERE channel_no = ?
      AND inv_priority = ?
      AND id > ?
      AND id <= ?
    ORDER BY id
    LIMIT ?
    LOCK IN SHARE MODE
) m
LEFT JOIN deliveries v
    ON v.consumer_no = ?
   AND v.message_id = m.id;

SELECT
    after_id,
    through_id,
    accepted
FROM books
WHERE consumer_no = ?
ORDER BY after_id DESC
LIMIT 1;

SELECT
    after_id,
    through_id,
    delivered
FROM (
    SELECT
        b.after_id,
        b.through_id,
        b.delivered,
        b.accepted - b.filtered - b.delivered AS rest,
        (
            SELECT COUNT(*)
            FROM dead_jobs d
            WHERE d.consumer_no = b.consumer_no
              AND d.message_id > b.after_id
              AND d.message_id <= b.through_id
              AND NOT EXISTS (SELECT 1 FROM deliveries v WHERE v.consumer_no = d.consumer_no AND v.message_id = d.message_id)
        ) + (
            SELECT COUNT(*)
            FROM open_jobs o
            WHERE o.consumer_no = b.consumer_no
              AND o.message_id > b.after_id
              AND o.message_id <= b.through_id
              AND NOT EXISTS (SELECT 1 FROM deliveries v WHERE v.consumer_no = o.consumer_no AND v.message_id = o.message_id)
              AND NOT EXISTS (SELECT 1 FROM dead_jobs d WHERE d.consumer_no = o.consumer_no AND d.message_id = o.message_id)
        ) AS left_over
    FROM books b
    WHERE b.consumer_no = ?
      AND b.after_id >= ?
      AND b.after_id < ?
      AND b.through_id <= ?
      AND b.accepted - b.filtered > b.delivered
) s
WHERE rest <> left_over;

SELECT
    at_ms,
    no,
    kind,
    channel_no,
    consumer_no,
    note
FROM history_marks
WHERE at_ms >= ?
  AND at_ms < ?
  AND (? = 0 OR channel_no = 0 OR channel_no = ?)
  AND (? = 0 OR consumer_no = 0 OR consumer_no = ?)
ORDER BY at_ms DESC, no DESC
LIMIT ?;

SELECT
    attempt,
    at_ms,
    status_code,
    error,
    duration_ms,
    answer,
    phase,
    worker
FROM attempts
WHERE consumer_no = ?
  AND message_id = ?
  AND attempt > 0
ORDER BY at_ms DESC, attempt DESC
LIMIT ?;

SELECT
    b.through_id,
    (
        SELECT MIN(n.after_id)
        FROM books n
        WHERE n.consumer_no = b.consumer_no
          AND n.after_id >= b.through_id
          AND n.through_id <= ?
    )
FROM books b
WHERE b.consumer_no = ?
  AND b.after_id >= ?
  AND b.after_id < ?
  AND b.through_id <= ?
  AND NOT EXISTS (
      SELECT 1
      FROM books f
      WHERE f.consumer_no = b.consumer_no
        AND f.after_id = b.through_id
        AND f.through_id <= ?
  )
ORDER BY b.after_id;

SELECT
    c.no,
    (
        SELECT m.id
        FROM messages m
        WHERE m.channel_no = c.no
        ORDER BY m.id DESC
        LIMIT 1
    )
FROM channels c
WHERE c.no > ?
ORDER BY c.no
LIMIT ?;

SELECT
    c.version,
    c.state,
    (ch.paused & 1) <> 0,
    (ch.paused & 2) <> 0,
    COALESCE(f.attempt_ms, 0),
    COALESCE(f.success_ms, 0),
    COALESCE(f.status_code, 0),
    f.error,
    COALESCE(f.claim_ms, 0),
    COALESCE(h.since_ms, 0),
    COALESCE(h.until_ms, 0),
    h.held_by,
    COALESCE(p.mode, 0),
    COALESCE(p.rate, 0),
    COALESCE(p.since_ms, 0),
    w.message_id,
    c.no
FROM consumers c
JOIN channels ch
  ON ch.no = c.channel_no
LEFT JOIN consumer_facts f
  ON f.consumer_no = c.no
LEFT JOIN holds h
  ON h.consumer_no = c.no
LEFT JOIN paces p
  ON p.consumer_no = c.no
LEFT JOIN marks w
  ON w.consumer_no = c.no
WHERE c.no = ?;

SELECT
    c.version,
    c.state,
    (ch.paused & 1) <> 0,
    (ch.paused & 2) <> 0,
    COALESCE(f.attempt_ms, 0),
    COALESCE(f.success_ms, 0),
    COALESCE(f.status_code, 0),
    f.error,
    COALESCE(f.claim_ms, 0),
    COALESCE(h.since_ms, 0),
    COALESCE(h.until_ms, 0),
    h.held_by,
    COALESCE(p.mode, 0),
    COALESCE(p.rate, 0),
    COALESCE(p.since_ms, 0),
    w.message_id,
    c.no,
    m.id,
    m.audience,
    m.priority,
    m.addressed,
    m.left_out,
    m.producer_no,
    CASE WHEN v.message_id IS NOT NULL THEN 3 WHEN d.message_id IS NOT NULL THEN 2 WHEN o.message_id IS NOT NULL THEN 1 ELSE 0 END,
    COALESCE(v.attempts, d.attempts, o.attempts, 0),
    COALESCE(v.at_ms, d.died_ms, o.changed_ms, 0),
    COALESCE(o.next_ms, 0),
    COALESCE(v.status_code, d.status_code, o.status_code, 0),
    COALESCE(d.reason, o.error),
    COALESCE(d.reason_code, 0),
    COALESCE(o.given_back, 0),
    CASE WHEN o.given_back > 0 AND EXISTS (SELECT 1 FROM attempts a WHERE a.consumer_no = c.no AND a.message_id = m.id AND a.at_ms = o.changed_ms AND a.phase = 4) THEN 1 ELSE 0 END,
    COALESCE(kc.attempts_ms, 0),
    CASE WHEN kc.attempts_ms > 0 AND COALESCE(v.message_id, d.message_id) IS NOT NULL THEN (SELECT COUNT(*) FROM attempts a WHERE a.consumer_no = c.no AND a.message_id = m.id) + CASE WHEN v.message_id IS NULL OR EXISTS (SELECT 1 FROM attempts a WHERE a.consumer_no = c.no AND a.message_id = m.id AND a.at_ms = v.at_ms AND a.attempt = v.attempts AND a.status_code BETWEEN 200 AND 299) THEN 0 ELSE 1 END ELSE 0 END
FROM messages m
JOIN consumers c
  ON c.channel_no = m.channel_no
JOIN channels ch
  ON ch.no = c.channel_no
LEFT JOIN consumer_facts f
  ON f.consumer_no = c.no
LEFT JOIN holds h
  ON h.consumer_no = c.no
LEFT JOIN paces p
  ON p.consumer_no = c.no
LEFT JOIN marks w
  ON w.consumer_no = c.no
LEFT JOIN kept_channels kc
  ON kc.channel_no = c.channel_no
LEFT JOIN deliveries v
  ON v.consumer_no = c.no
  AND v.message_id = m.id
LEFT JOIN dead_jobs d
  ON d.consumer_no = c.no
  AND d.message_id = m.id
LEFT JOIN open_jobs o
  ON o.consumer_no = c.no
  AND o.message_id = m.id
WHERE m.channel_no = ?
  AND m.id = ?
  AND c.no = ?;

SELECT
    c.version,
    c.state,
    (ch.paused & 1) <> 0,
    (ch.paused & 2) <> 0,
    COALESCE(f.attempt_ms, 0),
    COALESCE(f.success_ms, 0),
    COALESCE(f.status_code, 0),
    f.error,
    COALESCE(f.claim_ms, 0),
    COALESCE(h.since_ms, 0),
    COALESCE(h.until_ms, 0),
    h.held_by,
    COALESCE(p.mode, 0),
    COALESCE(p.rate, 0),
    COALESCE(p.since_ms, 0),
    w.message_id,
    c.no,
    m.id,
    m.audience,
    m.priority,
    m.addressed,
    m.left_out,
    m.producer_no,
    CASE WHEN v.message_id IS NOT NULL THEN 3 WHEN d.message_id IS NOT NULL THEN 2 WHEN o.message_id IS NOT NULL THEN 1 ELSE 0 END,
    COALESCE(v.attempts, d.attempts, o.attempts, 0),
    COALESCE(v.at_ms, d.died_ms, o.changed_ms, 0),
    COALESCE(o.next_ms, 0),
    COALESCE(v.status_code, d.status_code, o.status_code, 0),
    COALESCE(d.reason, o.error),
    COALESCE(d.reason_code, 0),
    COALESCE(o.given_back, 0),
    CASE WHEN o.given_back > 0 AND EXISTS (SELECT 1 FROM attempts a WHERE a.consumer_no = c.no AND a.message_id = m.id AND a.at_ms = o.changed_ms AND a.phase = 4) THEN 1 ELSE 0 END,
    COALESCE(kc.attempts_ms, 0),
    CASE WHEN kc.attempts_ms > 0 AND COALESCE(v.message_id, d.message_id) IS NOT NULL THEN (SELECT COUNT(*) FROM attempts a WHERE a.consumer_no = c.no AND a.message_id = m.id) + CASE WHEN v.message_id IS NULL OR EXISTS (SELECT 1 FROM attempts a WHERE a.consumer_no = c.no AND a.message_id = m.id AND a.at_ms = v.at_ms AND a.attempt = v.attempts AND a.status_code BETWEEN 200 AND 299) THEN 0 ELSE 1 END ELSE 0 END
FROM messages m
JOIN consumers c
  ON c.channel_no = m.channel_no
JOIN channels ch
  ON ch.no = c.channel_no
LEFT JOIN consumer_facts f
  ON f.consumer_no = c.no
LEFT JOIN holds h
  ON h.consumer_no = c.no
LEFT JOIN paces p
  ON p.consumer_no = c.no
LEFT JOIN marks w
  ON w.consumer_no = c.no
LEFT JOIN kept_channels kc
  ON kc.channel_no = c.channel_no
LEFT JOIN deliveries v
  ON v.consumer_no = c.no
  AND v.message_id = m.id
LEFT JOIN dead_jobs d
  ON d.consumer_no = c.no
  AND d.message_id = m.id
LEFT JOIN open_jobs o
  ON o.consumer_no = c.no
  AND o.message_id = m.id
WHERE m.channel_no = ?
  AND m.id = ?
ORDER BY c.position
LIMIT ?;

SELECT
    channel_id,
    store,
    at_ms
FROM places
WHERE channel_id = ?;

SELECT
    channel_no,
    since_ms
FROM rhythms
ORDER BY channel_no;

SELECT
    channel_no,
    through_id
FROM stored_marks;

SELECT
    consumer_no,
    SUM(jobs)
FROM dead_groups
GROUP BY consumer_no;

SELECT
    consumer_no,
    attempt_ms,
    success_ms,
    status_code,
    error,
    claim_ms
FROM consumer_facts
WHERE consumer_no IN (?...);

SELECT
    consumer_no,
    due_ms
FROM exchanges
WHERE consumer_no > ?
ORDER BY consumer_no, due_ms
LIMIT 1;

SELECT
    consumer_no,
    message_id
FROM awaiting_replies
WHERE producer_no = ?
ORDER BY consumer_no, message_id
LIMIT ?;

SELECT
    consumer_no,
    message_id
FROM marks;

SELECT
    consumer_no,
    message_id
FROM marks
WHERE consumer_no IN (?...)
FOR UPDATE;

SELECT
    consumer_no,
    message_id,
    priority,
    attempt,
    token,
    until_ms,
    worker
FROM kept_leases
ORDER BY
    consumer_no,
    message_id;

SELECT
    consumer_no,
    message_id,
    state,
    goes_back,
    attempt,
    status_code,
    truncated,
    delivered_ms,
    received_ms,
    ended_ms,
    deadline_ms,
    keep_ms,
    due_ms,
    tries,
    url,
    reason,
    headers,
    body
FROM exchanges
WHERE consumer_no = ?
  AND message_id IN (?...);

SELECT
    consumer_no,
    mode,
    rate,
    good,
    strained,
    since_ms
FROM paces;

SELECT
    consumer_no,
    no,
    has_fingerprint,
    fingerprint,
    reasons,
    from_ms,
    to_ms,
    most,
    picked,
    rate,
    canary,
    target_no,
    created_ms,
    matched,
    approximate,
    busy,
    state,
    replay_no,
    state_ms,
    reason,
    cursor_id,
    redriven,
    delivered,
    dead,
    stage,
    stage_ms,
    stage_jobs,
    stage_over,
    stage_again
FROM redrivings
WHERE busy = 1
  AND consumer_no >= ?
  AND (consumer_no > ? OR no > ?)
ORDER BY consumer_no, no
LIMIT ?;

SELECT
    consumer_no,
    no,
    has_fingerprint,
    fingerprint,
    reasons,
    from_ms,
    to_ms,
    most,
    picked,
    rate,
    canary,
    target_no,
    created_ms,
    matched,
    approximate,
    busy,
    state,
    replay_no,
    state_ms,
    reason,
    cursor_id,
    redriven,
    delivered,
    dead,
    stage,
    stage_ms,
    stage_jobs,
    stage_over,
    stage_again
FROM redrivings
WHERE consumer_no = ?
  AND no <= ?
ORDER BY no DESC
LIMIT ?;

SELECT
    consumer_no,
    no,
    has_fingerprint,
    fingerprint,
    reasons,
    from_ms,
    to_ms,
    most,
    picked,
    rate,
    canary,
    target_no,
    created_ms,
    matched,
    approximate,
    busy,
    state,
    replay_no,
    state_ms,
    reason,
    cursor_id,
    redriven,
    delivered,
    dead,
    stage,
    stage_ms,
    stage_jobs,
    stage_over,
    stage_again
FROM redrivings
WHERE consumer_no = ?
  AND no = ?;

SELECT
    consumer_no,
    no,
    has_fingerprint,
    fingerprint,
    reasons,
    from_ms,
    to_ms,
    most,
    picked,
    rate,
    canary,
    target_no,
    created_ms,
    matched,
    approximate,
    busy,
    state,
    replay_no,
    state_ms,
    reason,
    cursor_id,
    redriven,
    delivered,
    dead,
    stage,
    stage_ms,
    stage_jobs,
    stage_over,
    stage_again
FROM redrivings
WHERE consumer_no = ?
  AND no = ?
FOR UPDATE;

SELECT
    consumer_no,
    since_ms,
    until_ms,
    held_by
FROM holds
WHERE consumer_no = ?;

SELECT
    consumer_no,
    since_ms,
    until_ms,
    held_by
FROM holds
WHERE until_ms > ?;

SELECT
    d.message_id,
    d.died_ms,
    d.reason_code,
    d.redrives,
    d.disposal,
    v.message_id IS NOT NULL
FROM (
    SELECT
        consumer_no,
        message_id,
        died_ms,
        reason_code,
        redrives,
        disposal
    FROM dead_jobs
    WHERE consumer_no = ?
      AND message_id >= ?
    ORDER BY message_id
    LIMIT ?
) d
LEFT JOIN deliveries v
    ON v.consumer_no = d.consumer_no
   AND v.message_id = d.message_id
ORDER BY d.message_id;

SELECT
    d.message_id,
    d.priority,
    d.attempts,
    d.died_ms,
    d.status_code,
    d.reason,
    d.answer,
    d.reason_code,
    d.leases_lost,
    d.given_back,
    d.worker,
    d.fingerprint
FROM dead_jobs d
WHERE d.consumer_no = ?
  AND d.fingerprint = ?
  AND d.message_id <= ?
  AND d.message_id >= ?
  AND d.disposal <> 2
  AND d.died_ms >= ?
  AND d.died_ms <= ?
  AND ((1 << d.reason_code) & ?) <> 0
  AND NOT EXISTS (
      SELECT 1
      FROM deliveries v
      WHERE v.consumer_no = d.consumer_no
        AND v.message_id = d.message_id
  )
ORDER BY d.message_id DESC
LIMIT ?;

SELECT
    d.message_id,
    d.priority,
    d.attempts,
    d.died_ms,
    d.status_code,
    d.reason,
    d.answer,
    d.reason_code,
    d.leases_lost,
    d.given_back,
    d.worker,
    d.fingerprint
FROM dead_jobs d
WHERE d.consumer_no = ?
  AND d.fingerprint = ?
  AND d.message_id >= ?
  AND d.message_id <= ?
  AND d.disposal <> 2
  AND d.died_ms >= ?
  AND d.died_ms <= ?
  AND ((1 << d.reason_code) & ?) <> 0
  AND NOT EXISTS (
      SELECT 1
      FROM deliveries v
      WHERE v.consumer_no = d.consumer_no
        AND v.message_id = d.message_id
  )
ORDER BY d.message_id
LIMIT ?;

SELECT
    d.message_id,
    d.priority,
    d.attempts,
    d.died_ms,
    d.status_code,
    d.reason,
    d.answer,
    d.reason_code,
    d.leases_lost,
    d.given_back,
    d.worker,
    d.fingerprint
FROM dead_jobs d
WHERE d.consumer_no = ?
  AND d.message_id <= ?
  AND d.disposal <> 2
  AND NOT EXISTS (
      SELECT 1
      FROM deliveries v
      WHERE v.consumer_no = d.consumer_no
        AND v.message_id = d.message_id
  )
ORDER BY d.message_id DESC
LIMIT ?;

SELECT
    d.message_id,
    d.priority,
    d.attempts,
    d.died_ms,
    d.status_code,
    d.reason,
    d.answer,
    d.reason_code,
    d.leases_lost,
    d.given_back,
    d.worker,
    d.fingerprint
FROM dead_jobs d
WHERE d.consumer_no = ?
  AND d.message_id <= ?
  AND d.message_id >= ?
  AND d.disposal <> 2
  AND d.died_ms >= ?
  AND d.died_ms <= ?
  AND ((1 << d.reason_code) & ?) <> 0
  AND NOT EXISTS (
      SELECT 1
      FROM deliveries v
      WHERE v.consumer_no = d.consumer_no
        AND v.message_id = d.message_id
  )
ORDER BY d.message_id DESC
LIMIT ?;

SELECT
    d.message_id,
    d.priority,
    d.attempts,
    d.died_ms,
    d.status_code,
    d.reason,
    d.answer,
    d.reason_code,
    d.leases_lost,
    d.given_back,
    d.worker,
    d.fingerprint
FROM dead_jobs d
WHERE d.consumer_no = ?
  AND d.message_id >= ?
  AND d.disposal <> 2
  AND NOT EXISTS (
      SELECT 1
      FROM deliveries v
      WHERE v.consumer_no = d.consumer_no
        AND v.message_id = d.message_id
  )
ORDER BY d.message_id
LIMIT ?;

SELECT
    d.message_id,
    d.priority,
    d.attempts,
    d.died_ms,
    d.status_code,
    d.reason,
    d.answer,
    d.reason_code,
    d.leases_lost,
    d.given_back,
    d.worker,
    d.fingerprint
FROM dead_jobs d
WHERE d.consumer_no = ?
  AND d.message_id >= ?
  AND d.message_id <= ?
  AND d.disposal <> 2
  AND d.died_ms >= ?
  AND d.died_ms <= ?
  AND ((1 << d.reason_code) & ?) <> 0
  AND NOT EXISTS (
      SELECT 1
      FROM deliveries v
      WHERE v.consumer_no = d.consumer_no
        AND v.message_id = d.message_id
  )
ORDER BY d.message_id
LIMIT ?;

SELECT
    event,
    subject_no,
    since_ms
FROM open_alarms
ORDER BY event, subject_no;

SELECT
    event_key,
    attempt,
    status_code,
    reason_code
FROM status_events
WHERE producer_no = ?
ORDER BY event_key
LIMIT ?;

SELECT
    expires_ms,
    channel_no,
    id
FROM expiring
WHERE (expires_ms > ? OR expires_ms = ? AND (channel_no > ? OR channel_no = ? AND id > ?))
  AND expires_ms >= ?
  AND expires_ms <= ?
ORDER BY expires_ms, channel_no, id
LIMIT ?;

SELECT
    fingerprint,
    jobs,
    first_ms,
    last_ms,
    status_code,
    sample,
    sample_id
FROM dead_groups
WHERE consumer_no = ?
ORDER BY jobs DESC, fingerprint
LIMIT ?;

SELECT
    first_id,
    last_id,
    audience,
    messages,
    jobs
FROM bulk_steps
WHERE bulk_id = ?
  AND complete = 0
  AND first_id > ?
ORDER BY first_id
LIMIT ?;

SELECT
    id,
    0 AS status,
    0 AS attempts,
    0 AS at_ms,
    0 AS next_ms,
    0 AS status_code,
    NULL AS error,
    0 AS reason_code,
    ttl_ms,
    0 AS disposal,
    0 AS given_back,
    0 AS leases_lost,
    NULL AS worker,
    0 AS fingerprint
FROM messages
WHERE channel_no = ?
  AND id = ?
UNION ALL
SELECT
    message_id,
    3 AS status,
    attempts,
    at_ms,
    0 AS next_ms,
    status_code,
    NULL AS error,
    0 AS reason_code,
    0 AS redriven_ms,
    0 AS disposal,
    0 AS given_back,
    0 AS leases_lost,
    worker,
    0 AS fingerprint
FROM deliveries
WHERE consumer_no = ?
  AND message_id IN (?...)
UNION ALL
SELECT
    message_id,
    2,
    attempts,
    died_ms,
    0,
    status_code,
    reason,
    reason_code,
    0,
    disposal,
    given_back,
    leases_lost,
    worker,
    fingerprint
FROM dead_jobs
WHERE consumer_no = ?
  AND message_id IN (?...)
UNION ALL
SELECT
    message_id,
    1,
    attempts,
    changed_ms,
    next_ms,
    status_code,
    error,
    0,
    redriven_ms,
    0,
    given_back,
    leases_lost,
    NULL,
    0
FROM open_jobs
WHERE consumer_no = ?
  AND message_id IN (?...);

SELECT
    id,
    1,
    LENGTH(payload) + LENGTH(headers)
FROM messages
WHERE channel_no = ?
  AND id > ?
  AND id <= ?
ORDER BY id DESC
LIMIT ?;

SELECT
    id,
    audience,
    addressed,
    left_out,
    1023 - inv_priority
FROM prioritised
WHERE channel_no = ?
  AND inv_priority = ?
  AND id > ?
  AND id <= ?
ORDER BY id
LIMIT ?
LOCK IN SHARE MODE;

SELECT
    id,
    audience,
    addressed,
    left_out,
    priority
FROM messages
WHERE channel_no = ?
  AND id > ?
  AND id <= ?
  AND priority = 0
ORDER BY id
LIMIT ?
LOCK IN SHARE MODE;

SELECT
    id,
    audience,
    addressed,
    left_out,
    priority
FROM messages
WHERE channel_no = ?
  AND id > ?
  AND id <= ?
ORDER BY id
LIMIT ?
LOCK IN SHARE MODE;

SELECT
    id,
    audience,
    addressed,
    left_out,
    priority,
    LENGTH(payload)
FROM messages
WHERE channel_no = ?
  AND id > ?
  AND id <= ?
ORDER BY id
LIMIT ?;

SELECT
    id,
    audience,
    addressed,
    left_out,
    priority,
    msg_key,
    SUBSTR(headers, 1, 22)
FROM messages
WHERE channel_no = ?
  AND id > ?
  AND id <= ?
ORDER BY id
LIMIT ?
FOR UPDATE;

SELECT
    id,
    audience,
    addressed,
    left_out,
    priority,
    ttl_ms
FROM messages
WHERE channel_no = ?
  AND id IN (?...)
ORDER BY id;

SELECT
    id,
    channel_no,
    message,
    reason
FROM receipts
WHERE id IN (?...);

SELECT
    id,
    channel_no,
    producer_no,
    status,
    due_ms,
    msg_key
FROM scheduled
WHERE channel_no = ?
  AND status = ?
  AND due_ms >= ?
  AND (due_ms > ? OR id >= ?)
ORDER BY due_ms, id
LIMIT ?;

SELECT
    id,
    channel_no,
    producer_no,
    status,
    due_ms,
    occurrence,
    message_id,
    msg_key,
    recurrence,
    priority,
    ttl_ms,
    content_type,
    headers,
    payload,
    addressed,
    delay_ms,
    changed_ms,
    sent_before
FROM scheduled
WHERE channel_no = ?
  AND msg_key = ?;

SELECT
    id,
    channel_no,
    producer_no,
    status,
    due_ms,
    occurrence,
    message_id,
    msg_key,
    recurrence,
    priority,
    ttl_ms,
    content_type,
    headers,
    payload,
    addressed,
    delay_ms,
    changed_ms,
    sent_before
FROM scheduled
WHERE id IN (?...);

SELECT
    id,
    channel_no,
    producer_no,
    status,
    due_ms,
    occurrence,
    message_id,
    msg_key,
    recurrence,
    priority,
    ttl_ms,
    content_type,
    headers,
    payload,
    addressed,
    delay_ms,
    changed_ms,
    sent_before
FROM scheduled
WHERE id IN (?...)
FOR UPDATE;

SELECT
    id,
    channel_no,
    secret,
    created_ms
FROM sqs_keys
WHERE channel_no = ?
  AND id >= ?
ORDER BY id
LIMIT ?;

SELECT
    id,
    channel_no,
    secret,
    created_ms
FROM sqs_keys
WHERE id = ?;

SELECT
    id,
    channel_no,
    secret,
    created_ms
FROM sqs_keys
WHERE id > ?
ORDER BY id
LIMIT ?;

SELECT
    id,
    finished,
    next_ms,
    changed_ms,
    returned
FROM (
    SELECT
        j.id,
        CASE
            WHEN NOT EXISTS (SELECT 1 FROM messages m WHERE m.channel_no = ? AND m.id = j.id) THEN 1
            WHEN EXISTS (SELECT 1 FROM deliveries v WHERE v.consumer_no = ? AND v.message_id = j.id) THEN 1
            WHEN EXISTS (SELECT 1 FROM dead_jobs d WHERE d.consumer_no = ? AND d.message_id = j.id) THEN 1
            ELSE 0
        END AS finished,
        j.next_ms,
        j.changed_ms,
        CASE WHEN j.given_back > 0 AND EXISTS (
            SELECT 1
            FROM attempts a
            WHERE a.consumer_no = ?
              AND a.message_id = j.id
              AND a.at_ms = j.changed_ms
              AND a.phase = 4
        ) THEN 1 ELSE 0 END AS returned
    FROM (
        SELECT
            message_id AS id,
            next_ms,
            changed_ms,
            given_back
        FROM open_jobs
        WHERE consumer_no = ?
        ORDER BY message_id
        LIMIT ?
    ) j
    UNION ALL
    SELECT
        j.id,
        CASE
            WHEN EXISTS (SELECT 1 FROM open_jobs o WHERE o.consumer_no = ? AND o.message_id = j.id) THEN 1
            WHEN EXISTS (SELECT 1 FROM deliveries v WHERE v.consumer_no = ? AND v.message_id = j.id) THEN 1
            WHEN EXISTS (SELECT 1 FROM dead_jobs d WHERE d.consumer_no = ? AND d.message_id = j.id) THEN 1
            ELSE 0
        END,
        0,
        0,
        0
    FROM (
        SELECT id
        FROM messages
        WHERE channel_no = ?
          AND id > ?
          AND (audience > ? OR id > ?)
  AND (addressed IS NULL OR SUBSTR(HEX(addressed), ?, 1) IN (?...))
  AND NOT (left_out IS NOT NULL AND SUBSTR(HEX(left_out), ?, 1) IN (?...))
        ORDER BY id
        LIMIT ?
    ) j
) u;

SELECT
    id,
    headers
FROM messages
WHERE channel_no = ?
  AND id IN (?...);

SELECT
    id,
    name,
    scopes,
    digest,
    key_id,
    created_ms,
    expires_ms,
    used_ms,
    version
FROM api_tokens
WHERE id = ?;

SELECT
    id,
    name,
    scopes,
    digest,
    key_id,
    created_ms,
    expires_ms,
    used_ms,
    version
FROM api_tokens
WHERE id >= ?
ORDER BY id
LIMIT ?;

SELECT
    id,
    owner,
    fence,
    channel_no,
    producer_no,
    state,
    paused,
    spec,
    chunks,
    bytes,
    total,
    row_no,
    byte_pos,
    published,
    rejected,
    duplicates,
    speed,
    tries,
    next_ms,
    lease_ms,
    changed_ms,
    reason
FROM bulks
WHERE channel_no = ?
  AND id >= ?
  AND state > 0
  AND (? = 0 OR producer_no = ?)
ORDER BY id
LIMIT ?;

SELECT
    id,
    owner,
    fence,
    channel_no,
    producer_no,
    state,
    paused,
    spec,
    chunks,
    bytes,
    total,
    row_no,
    byte_pos,
    published,
    rejected,
    duplicates,
    speed,
    tries,
    next_ms,
    lease_ms,
    changed_ms,
    reason
FROM bulks
WHERE id = ?;

SELECT
    id,
    owner,
    fence,
    channel_no,
    producer_no,
    state,
    paused,
    spec,
    chunks,
    bytes,
    total,
    row_no,
    byte_pos,
    published,
    rejected,
    duplicates,
    speed,
    tries,
    next_ms,
    lease_ms,
    changed_ms,
    reason
FROM bulks
WHERE id = ?
FOR UPDATE;

SELECT
    id,
    owner,
    fence,
    channel_no,
    producer_no,
    state,
    paused,
    spec,
    chunks,
    bytes,
    total,
    row_no,
    byte_pos,
    published,
    rejected,
    duplicates,
    speed,
    tries,
    next_ms,
    lease_ms,
    changed_ms,
    reason
FROM bulks
WHERE state = ?
  AND paused = 0
  AND producer_no = ?
  AND lease_ms <= ?
  AND next_ms <= ?
ORDER BY next_ms, id
LIMIT 1
FOR UPDATE SKIP LOCKED;

SELECT
    id,
    priority,
    left_out
FROM messages
WHERE channel_no = ?
  AND id IN (?...)
FOR UPDATE;

SELECT
    id,
    producer_no,
    LENGTH(payload) + LENGTH(headers)
FROM messages
WHERE channel_no = ?
  AND id > ?
  AND id <= ?
ORDER BY id
LIMIT ?;

SELECT
    id,
    producer_no,
    body
FROM status_batches
WHERE id > ?
ORDER BY id
LIMIT ?;

SELECT
    id,
    producer_no,
    channel_no,
    due_ms,
    LENGTH(payload) + LENGTH(headers)
FROM scheduled
WHERE status = 0
  AND due_ms <= ?
ORDER BY due_ms, id
LIMIT ?;

SELECT
    id,
    producer_no,
    msg_key
FROM messages
WHERE channel_no = ?
  AND id IN (?...);

SELECT
    id,
    producer_no,
    priority,
    audience,
    addressed,
    left_out,
    msg_key,
    content_type,
    headers,
    LENGTH(payload),
    CASE WHEN LENGTH(payload) <= ? THEN payload END,
    ttl_ms
FROM messages
WHERE channel_no = ?
  AND id IN (?...);

SELECT
    id,
    producer_no,
    priority,
    audience,
    addressed,
    left_out,
    msg_key,
    content_type,
    headers,
    payload,
    ttl_ms
FROM messages
WHERE channel_no = ?
  AND id IN (?...);

SELECT
    id,
    producer_no,
    priority,
    audience,
    addressed,
    left_out,
    msg_key,
    content_type,
    ttl_ms
FROM messages
WHERE channel_no = ?
  AND id >= ?
ORDER BY id
LIMIT ?;

SELECT
    id,
    producer_no,
    priority,
    msg_key,
    content_type,
    headers,
    payload,
    ttl_ms,
    addressed
FROM messages
WHERE channel_no = ?
  AND id IN (?...)
LOCK IN SHARE MODE;

SELECT
    id,
    status,
    occurrence,
    message_id,
    changed_ms
FROM scheduled
WHERE id IN (?...)
FOR UPDATE SKIP LOCKED;

SELECT
    k.id,
    k.msg_key,
    COALESCE(m.producer_no, 0),
    COALESCE(m.priority, 0),
    COALESCE(m.content_type, ''),
    m.headers,
    COALESCE(LENGTH(m.payload), -1)
FROM message_keys k
LEFT JOIN messages m
  ON m.channel_no = k.channel_no
  AND m.id = k.id
WHERE k.channel_no = ?
  AND k.msg_key IN (?...)
LOCK IN SHARE MODE;

SELECT
    k.msg_key,
    k.id
FROM message_keys k
JOIN messages m
  ON m.channel_no = k.channel_no
  AND m.id = k.id
WHERE k.channel_no = ?
  AND k.msg_key IN (?...);

SELECT
    m.id,
    m.audience,
    m.addressed,
    m.left_out,
    m.priority
FROM ordered o
JOIN messages m
  ON m.channel_no = o.channel_no
  AND m.id = o.message_id
WHERE o.channel_no = ?
  AND o.prev_id IN (?...);

SELECT
    m.id,
    m.producer_no,
    m.priority,
    m.audience,
    m.addressed,
    m.left_out,
    m.msg_key,
    m.content_type,
    m.ttl_ms,
    m.found,
    CASE WHEN v.message_id IS NOT NULL THEN 3 WHEN d.message_id IS NOT NULL THEN 2 WHEN o.message_id IS NOT NULL THEN 1 ELSE 0 END,
    COALESCE(o.attempts, 0),
    COALESCE(o.changed_ms, 0),
    COALESCE(o.next_ms, 0),
    COALESCE(o.redriven_ms, 0),
    COALESCE(o.status_code, 0),
    COALESCE(d.reason, o.error)
FROM (
    SELECT
    b.id,
    b.producer_no,
    b.priority,
    b.audience,
    b.addressed,
    b.left_out,
    b.msg_key,
    b.content_type,
    b.ttl_ms,
    1 AS found
    FROM (
        SELECT message_id
        FROM open_jobs
        WHERE consumer_no = ?
          AND message_id >= ?
          AND message_id <= ?
        ORDER BY message_id
        LIMIT ?
    ) r
    JOIN messages b
      ON b.channel_no = ?
      AND b.id = r.message_id
) m
LEFT JOIN deliveries v
  ON v.consumer_no = ?
  AND v.message_id = m.id
LEFT JOIN dead_jobs d
  ON d.consumer_no = ?
  AND d.message_id = m.id
LEFT JOIN open_jobs o
  ON o.consumer_no = ?
  AND o.message_id = m.id
ORDER BY m.id;

SELECT
    m.id,
    m.producer_no,
    m.priority,
    m.audience,
    m.addressed,
    m.left_out,
    m.msg_key,
    m.content_type,
    m.ttl_ms,
    m.found,
    CASE WHEN v.message_id IS NOT NULL THEN 3 WHEN d.message_id IS NOT NULL THEN 2 WHEN o.message_id IS NOT NULL THEN 1 ELSE 0 END,
    COALESCE(o.attempts, 0),
    COALESCE(o.changed_ms, 0),
    COALESCE(o.next_ms, 0),
    COALESCE(o.redriven_ms, 0),
    COALESCE(o.status_code, 0),
    COALESCE(d.reason, o.error)
FROM (
    SELECT
    b.id,
    b.producer_no,
    b.priority,
    b.audience,
    b.addressed,
    b.left_out,
    b.msg_key,
    b.content_type,
    b.ttl_ms,
    1 AS found
    FROM (
        SELECT message_id
        FROM open_jobs
        WHERE consumer_no = ?
          AND message_id >= ?
          AND message_id <= ?
        ORDER BY message_id DESC
        LIMIT ?
    ) r
    JOIN messages b
      ON b.channel_no = ?
      AND b.id = r.message_id
) m
LEFT JOIN deliveries v
  ON v.consumer_no = ?
  AND v.message_id = m.id
LEFT JOIN dead_jobs d
  ON d.consumer_no = ?
  AND d.message_id = m.id
LEFT JOIN open_jobs o
  ON o.consumer_no = ?
  AND o.message_id = m.id
ORDER BY m.id DESC;

SELECT
    m.id,
    m.producer_no,
    m.priority,
    m.audience,
    m.addressed,
    m.left_out,
    m.msg_key,
    m.content_type,
    m.ttl_ms,
    m.found,
    CASE WHEN v.message_id IS NOT NULL THEN 3 WHEN d.message_id IS NOT NULL THEN 2 WHEN o.message_id IS NOT NULL THEN 1 ELSE 0 END,
    COALESCE(o.attempts, 0),
    COALESCE(o.changed_ms, 0),
    COALESCE(o.next_ms, 0),
    COALESCE(o.redriven_ms, 0),
    COALESCE(o.status_code, 0),
    COALESCE(d.reason, o.error)
FROM (
    SELECT
    id,
    producer_no,
    priority,
    audience,
    addressed,
    left_out,
    msg_key,
    content_type,
    ttl_ms,
    1 AS found
    FROM messages
    WHERE channel_no = ?
      AND id >= ?
      AND id <= ?
    ORDER BY id
    LIMIT ?
) m
LEFT JOIN deliveries v
  ON v.consumer_no = ?
  AND v.message_id = m.id
LEFT JOIN dead_jobs d
  ON d.consumer_no = ?
  AND d.message_id = m.id
LEFT JOIN open_jobs o
  ON o.consumer_no = ?
  AND o.message_id = m.id
ORDER BY m.id;

SELECT
    m.id,
    m.producer_no,
    m.priority,
    m.audience,
    m.addressed,
    m.left_out,
    m.msg_key,
    m.content_type,
    m.ttl_ms,
    m.found,
    CASE WHEN v.message_id IS NOT NULL THEN 3 WHEN d.message_id IS NOT NULL THEN 2 WHEN o.message_id IS NOT NULL THEN 1 ELSE 0 END,
    COALESCE(o.attempts, 0),
    COALESCE(o.changed_ms, 0),
    COALESCE(o.next_ms, 0),
    COALESCE(o.redriven_ms, 0),
    COALESCE(o.status_code, 0),
    COALESCE(d.reason, o.error)
FROM (
    SELECT
    id,
    producer_no,
    priority,
    audience,
    addressed,
    left_out,
    msg_key,
    content_type,
    ttl_ms,
    1 AS found
    FROM messages
    WHERE channel_no = ?
      AND id >= ?
      AND id <= ?
    ORDER BY id DESC
    LIMIT ?
) m
LEFT JOIN deliveries v
  ON v.consumer_no = ?
  AND v.message_id = m.id
LEFT JOIN dead_jobs d
  ON d.consumer_no = ?
  AND d.message_id = m.id
LEFT JOIN open_jobs o
  ON o.consumer_no = ?
  AND o.message_id = m.id
ORDER BY m.id DESC;

SELECT
    m.id,
    m.producer_no,
    m.priority,
    m.audience,
    m.addressed,
    m.left_out,
    m.msg_key,
    m.content_type,
    m.ttl_ms,
    m.found,
    CASE WHEN v.message_id IS NOT NULL THEN 3 WHEN d.message_id IS NOT NULL THEN 2 WHEN o.message_id IS NOT NULL THEN 1 ELSE 0 END,
    COALESCE(o.attempts, 0),
    COALESCE(o.changed_ms, 0),
    COALESCE(o.next_ms, 0),
    COALESCE(o.redriven_ms, 0),
    COALESCE(o.status_code, 0),
    COALESCE(d.reason, o.error)
FROM (
    SELECT
    id,
    producer_no,
    priority,
    audience,
    addressed,
    left_out,
    msg_key,
    content_type,
    ttl_ms,
    1 AS found
    FROM messages
    WHERE channel_no = ?
      AND id IN (?...)
) m
LEFT JOIN deliveries v
  ON v.consumer_no = ?
  AND v.message_id = m.id
LEFT JOIN dead_jobs d
  ON d.consumer_no = ?
  AND d.message_id = m.id
LEFT JOIN open_jobs o
  ON o.consumer_no = ?
  AND o.message_id = m.id
ORDER BY m.id;

SELECT
    m.id,
    m.producer_no,
    m.priority,
    m.audience,
    m.addressed,
    m.left_out,
    m.msg_key,
    m.content_type,
    m.ttl_ms,
    m.found,
    CASE WHEN v.message_id IS NOT NULL THEN 3 WHEN d.message_id IS NOT NULL THEN 2 WHEN o.message_id IS NOT NULL THEN 1 ELSE 0 END,
    COALESCE(o.attempts, 0),
    COALESCE(o.changed_ms, 0),
    COALESCE(o.next_ms, 0),
    COALESCE(o.redriven_ms, 0),
    COALESCE(o.status_code, 0),
    COALESCE(d.reason, o.error)
FROM (
    SELECT
    id,
    producer_no,
    priority,
    audience,
    addressed,
    left_out,
    msg_key,
    content_type,
    ttl_ms,
    INSTR(payload, ?) > 0 AS found
    FROM messages
    WHERE channel_no = ?
      AND id >= ?
      AND id <= ?
    ORDER BY id
    LIMIT ?
) m
LEFT JOIN deliveries v
  ON v.consumer_no = ?
  AND v.message_id = m.id
LEFT JOIN dead_jobs d
  ON d.consumer_no = ?
  AND d.message_id = m.id
LEFT JOIN open_jobs o
  ON o.consumer_no = ?
  AND o.message_id = m.id
ORDER BY m.id;

SELECT
    m.id,
    m.producer_no,
    m.priority,
    m.audience,
    m.addressed,
    m.left_out,
    m.msg_key,
    m.content_type,
    m.ttl_ms,
    m.found,
    CASE WHEN v.message_id IS NOT NULL THEN 3 WHEN d.message_id IS NOT NULL THEN 2 WHEN o.message_id IS NOT NULL THEN 1 ELSE 0 END,
    COALESCE(o.attempts, 0),
    COALESCE(o.changed_ms, 0),
    COALESCE(o.next_ms, 0),
    COALESCE(o.redriven_ms, 0),
    COALESCE(o.status_code, 0),
    COALESCE(d.reason, o.error)
FROM (
    SELECT
    id,
    producer_no,
    priority,
    audience,
    addressed,
    left_out,
    msg_key,
    content_type,
    ttl_ms,
    INSTR(payload, ?) > 0 AS found
    FROM messages
    WHERE channel_no = ?
      AND id >= ?
      AND id <= ?
    ORDER BY id DESC
    LIMIT ?
) m
LEFT JOIN deliveries v
  ON v.consumer_no = ?
  AND v.message_id = m.id
LEFT JOIN dead_jobs d
  ON d.consumer_no = ?
  AND d.message_id = m.id
LEFT JOIN open_jobs o
  ON o.consumer_no = ?
  AND o.message_id = m.id
ORDER BY m.id DESC;

SELECT
    message_id,
    3 AS status,
    attempts,
    at_ms,
    0 AS next_ms,
    status_code,
    NULL AS error,
    0 AS reason_code,
    0 AS redriven_ms,
    0 AS disposal,
    0 AS given_back,
    0 AS leases_lost,
    worker,
    0 AS fingerprint
FROM deliveries
WHERE consumer_no = ?
  AND message_id IN (?...)
UNION ALL
SELECT
    message_id,
    2,
    attempts,
    died_ms,
    0,
    status_code,
    reason,
    reason_code,
    0,
    disposal,
    given_back,
    leases_lost,
    worker,
    fingerprint
FROM dead_jobs
WHERE consumer_no = ?
  AND message_id IN (?...)
UNION ALL
SELECT
    message_id,
    1,
    attempts,
    changed_ms,
    next_ms,
    status_code,
    error,
    0,
    redriven_ms,
    0,
    given_back,
    leases_lost,
    NULL,
    0
FROM open_jobs
WHERE consumer_no = ?
  AND message_id IN (?...);

SELECT
    message_id,
    at_ms
FROM attempts
WHERE consumer_no = ?
  AND message_id > ?
  AND message_id <= ?
ORDER BY message_id, at_ms
LIMIT ?;

SELECT
    message_id,
    at_ms,
    attempt
FROM attempts
WHERE consumer_no = ?
  AND message_id IN (?...);

SELECT
    message_id,
    died_ms,
    fingerprint,
    disposal
FROM dead_jobs
WHERE consumer_no = ?
  AND message_id IN (?...)
  AND disposal <> 2
  AND died_ms >= ?
  AND died_ms <= ?
  AND ((1 << reason_code) & ?) <> 0
  AND (? = 0 OR fingerprint = ?)
ORDER BY message_id;

SELECT
    message_id,
    died_ms,
    fingerprint,
    disposal
FROM dead_jobs
WHERE consumer_no = ?
  AND message_id IN (?...)
ORDER BY message_id
FOR UPDATE;

SELECT
    message_id,
    moved_ms,
    stage,
    fingerprint
FROM redriving_jobs
WHERE consumer_no = ?
  AND no = ?
  AND message_id > ?
  AND moved_ms = 0
ORDER BY message_id
LIMIT ?;

SELECT
    message_id,
    moved_ms,
    stage,
    fingerprint
FROM redriving_jobs
WHERE consumer_no = ?
  AND no = ?
  AND message_id > ?
  AND moved_ms > 0
ORDER BY message_id
LIMIT ?;

SELECT
    message_id,
    moved_ms,
    stage,
    fingerprint
FROM redriving_jobs
WHERE consumer_no = ?
  AND no = ?
  AND message_id IN (?...)
FOR UPDATE;

SELECT
    message_id,
    priority,
    attempts,
    died_ms,
    status_code,
    reason,
    answer,
    reason_code,
    leases_lost,
    given_back,
    worker,
    fingerprint
FROM dead_jobs
WHERE consumer_no = ?
ORDER BY message_id DESC
LIMIT 1;

SELECT
    message_id,
    priority,
    attempts,
    redrives,
    leases_lost,
    given_back,
    died_ms,
    fingerprint,
    disposal
FROM dead_jobs
WHERE consumer_no = ?
  AND message_id IN (?...)
ORDER BY message_id
FOR UPDATE;

SELECT
    message_id,
    redrives,
    leases_lost,
    given_back
FROM open_jobs
WHERE consumer_no = ?
  AND message_id IN (?...)
ORDER BY message_id;

SELECT
    message_id,
    state,
    goes_back,
    LENGTH(body) + LENGTH(headers)
FROM exchanges
WHERE consumer_no = ?
  AND message_id IN (?...);

SELECT
    message_id,
    state,
    goes_back,
    deadline_ms,
    due_ms,
    tries,
    url,
    LENGTH(body) + LENGTH(headers)
FROM exchanges
WHERE consumer_no = ?
  AND due_ms <= ?
ORDER BY due_ms
LIMIT ?;

SELECT
    mode,
    rate,
    good,
    strained,
    since_ms
FROM paces
WHERE consumer_no = ?
FOR UPDATE;

SELECT
    msg_key,
    id,
    fingerprint,
    terms
FROM idempotency_keys
WHERE channel_no = ?
  AND msg_key IN (?...)
LOCK IN SHARE MODE;

SELECT
    name,
    secret
FROM secrets
WHERE name = ?;

SELECT
    name,
    secret
FROM secrets
WHERE name > ?
ORDER BY name
LIMIT ?;

SELECT
    no,
    at_ms,
    hash
FROM audit_head
WHERE one = 1;

SELECT
    no,
    at_ms,
    hash
FROM audit_head
WHERE one = 1
FOR UPDATE;

SELECT
    no,
    at_ms,
    who,
    from_address,
    action,
    resource,
    before_json,
    after_json,
    hash
FROM audit
WHERE no >= ?
  AND no <= ?
  AND (resource = ? OR SUBSTR(resource, 1, ?) = ?)
ORDER BY no
LIMIT ?;

SELECT
    no,
    at_ms,
    who,
    from_address,
    action,
    resource,
    before_json,
    after_json,
    hash
FROM audit
WHERE no >= ?
  AND no <= ?
  AND (resource = ? OR SUBSTR(resource, 1, ?) = ?)
ORDER BY no DESC
LIMIT ?;

SELECT
    no,
    channel_no,
    consumer_no,
    after_id,
    through_id,
    selected,
    filter,
    rate,
    state,
    created_ms,
    state_ms,
    removed_ms,
    matched,
    bytes,
    estimated,
    settled_id,
    jobs,
    job_bytes,
    delivered,
    dead,
    source_no,
    redrive_no,
    version
FROM replays
WHERE channel_no = ?
  AND after_id < ?
  AND through_id > ?
ORDER BY no;

SELECT
    no,
    channel_no,
    consumer_no,
    after_id,
    through_id,
    selected,
    filter,
    rate,
    state,
    created_ms,
    state_ms,
    removed_ms,
    matched,
    bytes,
    estimated,
    settled_id,
    jobs,
    job_bytes,
    delivered,
    dead,
    source_no,
    redrive_no,
    version
FROM replays
WHERE channel_no = ?
  AND consumer_no = ?
  AND no <= ?
ORDER BY no DESC
LIMIT ?;

SELECT
    no,
    channel_no,
    consumer_no,
    after_id,
    through_id,
    selected,
    filter,
    rate,
    state,
    created_ms,
    state_ms,
    removed_ms,
    matched,
    bytes,
    estimated,
    settled_id,
    jobs,
    job_bytes,
    delivered,
    dead,
    source_no,
    redrive_no,
    version
FROM replays
WHERE no = ?;

SELECT
    no,
    channel_no,
    consumer_no,
    after_id,
    through_id,
    selected,
    filter,
    rate,
    state,
    created_ms,
    state_ms,
    removed_ms,
    matched,
    bytes,
    estimated,
    settled_id,
    jobs,
    job_bytes,
    delivered,
    dead,
    source_no,
    redrive_no,
    version
FROM replays
WHERE version > ?
  AND (state < 2 OR state_ms > ?)
ORDER BY no;

SELECT
    no,
    channel_no,
    position,
    id,
    name,
    token,
    callback_url,
    type,
    protocol,
    policy,
    changed_ms,
    version,
    state,
    state_reason,
    state_ms,
    until_id,
    since_id,
    since_policy,
    former_token,
    former_until_ms
FROM consumers
WHERE channel_no = ?
  AND id = ?
  AND deleted_no = 0;

SELECT
    no,
    channel_no,
    position,
    id,
    name,
    token,
    callback_url,
    type,
    protocol,
    policy,
    changed_ms,
    version,
    state,
    state_reason,
    state_ms,
    until_id,
    since_id,
    since_policy,
    former_token,
    former_until_ms
FROM consumers
WHERE no = ?;

SELECT
    no,
    channel_no,
    position,
    id,
    name,
    token,
    callback_url,
    type,
    protocol,
    policy,
    changed_ms,
    version,
    state,
    state_reason,
    state_ms,
    until_id,
    since_id,
    since_policy,
    former_token,
    former_until_ms
FROM consumers
WHERE no > ?
ORDER BY no
LIMIT ?;

SELECT
    no,
    channel_no,
    position,
    id,
    name,
    token,
    callback_url,
    type,
    protocol,
    policy,
    changed_ms,
    version,
    state,
    state_reason,
    state_ms,
    until_id,
    since_id,
    since_policy,
    former_token,
    former_until_ms
FROM consumers
WHERE version > ?
ORDER BY no;

SELECT
    no,
    deleted_no <> 0,
    since_id IS NOT NULL
FROM consumers
WHERE channel_no = ?;

SELECT
    no,
    id,
    name,
    max_channels,
    paused,
    settings,
    changed_ms,
    version,
    deleted_no <> 0
FROM channel_groups
WHERE id = ?
  AND deleted_no = 0;

SELECT
    no,
    id,
    name,
    max_channels,
    paused,
    settings,
    changed_ms,
    version,
    deleted_no <> 0
FROM channel_groups
WHERE no = ?;

SELECT
    no,
    id,
    name,
    max_channels,
    paused,
    settings,
    changed_ms,
    version,
    deleted_no <> 0
FROM channel_groups
WHERE version > ?
ORDER BY no;

SELECT
    no,
    id,
    name,
    token,
    audience,
    changed_ms,
    version,
    (paused & 1) <> 0,
    (paused & 2) <> 0,
    intake,
    deleted_no <> 0,
    shape,
    group_id,
    former_token,
    former_until_ms
FROM channels
WHERE id = ?
  AND deleted_no = 0;

SELECT
    no,
    id,
    name,
    token,
    audience,
    changed_ms,
    version,
    (paused & 1) <> 0,
    (paused & 2) <> 0,
    intake,
    deleted_no <> 0,
    shape,
    group_id,
    former_token,
    former_until_ms
FROM channels
WHERE no > ?
ORDER BY no
LIMIT ?;

SELECT
    no,
    id,
    name,
    token,
    audience,
    changed_ms,
    version,
    (paused & 1) <> 0,
    (paused & 2) <> 0,
    intake,
    deleted_no <> 0,
    shape,
    group_id,
    former_token,
    former_until_ms
FROM channels
WHERE version > ?
ORDER BY no;

SELECT
    no,
    id,
    name,
    token,
    changed_ms,
    version,
    publish_secret,
    deleted_no <> 0,
    COALESCE(settings, ''),
    former_token,
    former_until_ms
FROM producers
WHERE id = ?
  AND deleted_no = 0;

SELECT
    no,
    id,
    name,
    token,
    changed_ms,
    version,
    publish_secret,
    deleted_no <> 0,
    COALESCE(settings, ''),
    former_token,
    former_until_ms
FROM producers
WHERE no = ?;

SELECT
    no,
    id,
    name,
    token,
    changed_ms,
    version,
    publish_secret,
    deleted_no <> 0,
    COALESCE(settings, ''),
    former_token,
    former_until_ms
FROM producers
WHERE no > ?
ORDER BY no
LIMIT ?;

SELECT
    no,
    id,
    name,
    token,
    changed_ms,
    version,
    publish_secret,
    deleted_no <> 0,
    COALESCE(settings, ''),
    former_token,
    former_until_ms
FROM producers
WHERE version > ?
ORDER BY no;

SELECT
    no,
    name,
    token,
    expires_ms
FROM nodes
ORDER BY no;

SELECT
    o.message_id,
    o.prev_id,
    p.audience,
    p.addressed,
    p.left_out
FROM ordered o
LEFT JOIN messages p
  ON p.channel_no = o.channel_no
  AND p.id = o.prev_id
WHERE o.channel_no = ?
  AND o.message_id IN (?...);

SELECT
    o.message_id,
    o.priority,
    o.attempts,
    o.next_ms,
    o.redriven_ms
FROM open_jobs o
WHERE o.consumer_no = ?
  AND o.message_id >= ?
  AND NOT EXISTS (
      SELECT 1
      FROM deliveries v
      WHERE v.consumer_no = o.consumer_no
        AND v.message_id = o.message_id
  )
  AND NOT EXISTS (
      SELECT 1
      FROM dead_jobs d
      WHERE d.consumer_no = o.consumer_no
        AND d.message_id = o.message_id
  )
ORDER BY o.message_id
LIMIT ?;

SELECT
    o.no,
    o.id
FROM (
    SELECT
        c.no,
        (
            SELECT MIN(j.message_id)
            FROM open_jobs j
            WHERE j.consumer_no = c.no
        ) AS id
    FROM consumers c
) o
WHERE o.id IS NOT NULL;

SELECT
    position,
    id
FROM consumers
WHERE channel_no = ?;

SELECT
    producer_no,
    COUNT(*)
FROM scheduled
WHERE status = 0
  AND id < ?
  AND producer_no IN (?...)
GROUP BY producer_no;

SELECT
    producer_no,
    COUNT(*)
FROM scheduled
WHERE status = 0
  AND id < ?
GROUP BY producer_no;

SELECT
    producer_no,
    COUNT(*),
    SUM(LENGTH(payload) + LENGTH(headers))
FROM messages
WHERE channel_no = ?
  AND id > ?
  AND id <= ?
  AND id NOT IN (?...)
GROUP BY producer_no
ORDER BY producer_no;

SELECT
    producer_no,
    SUM(LENGTH(payload) + LENGTH(headers))
FROM scheduled
WHERE status IN (0, 1)
  AND id < ?
  AND producer_no IN (?...)
GROUP BY producer_no;

SELECT
    producer_no,
    SUM(LENGTH(payload) + LENGTH(headers))
FROM scheduled
WHERE status IN (0, 1)
  AND id < ?
GROUP BY producer_no;

SELECT
    producer_no,
    SUM(bytes)
FROM bulks
WHERE state < ?
  AND chunks > 0
GROUP BY producer_no;

SELECT
    producer_no,
    channel_no
FROM scheduled
WHERE status = 0
GROUP BY
    status,
    producer_no,
    channel_no
HAVING MIN(due_ms) <= ?
ORDER BY
    producer_no,
    channel_no;

SELECT
    producer_no,
    messages,
    bytes
FROM stored_sums;

SELECT
    r.consumer_no,
    6,
    r.no,
    t.at_ms,
    t.attempts,
    t.status_code,
    t.duration_ms,
    t.node,
    0,
    0,
    0,
    NULL,
    NULL,
    t.worker
FROM replays r
JOIN deliveries t ON t.consumer_no = r.no
WHERE r.channel_no = ?
  AND r.consumer_no IN (?...)
  AND t.message_id = ?
  AND r.after_id < t.message_id
  AND r.through_id >= t.message_id
  AND (r.consumer_no <> ? OR t.at_ms >= ?)
  AND 1 = 1
ORDER BY r.consumer_no, t.at_ms
LIMIT ?;

SELECT
    r.consumer_no,
    6,
    r.no,
    t.died_ms,
    t.attempts,
    t.status_code,
    NULL,
    NULL,
    0,
    t.reason_code,
    0,
    t.reason,
    NULL,
    t.worker
FROM replays r
JOIN dead_jobs t ON t.consumer_no = r.no
WHERE r.channel_no = ?
  AND r.consumer_no IN (?...)
  AND t.message_id = ?
  AND r.after_id < t.message_id
  AND r.through_id >= t.message_id
  AND (r.consumer_no <> ? OR t.died_ms >= ?)
  AND 1 = 1
ORDER BY r.consumer_no, t.died_ms
LIMIT ?;

SELECT
    r.consumer_no,
    CASE t.phase WHEN 3 THEN 2 WHEN 4 THEN 10 ELSE 1 END,
    r.no,
    t.at_ms,
    t.attempt,
    t.status_code,
    t.duration_ms,
    t.node,
    t.phase,
    0,
    0,
    t.error,
    t.answer,
    t.worker
FROM replays r
JOIN attempts t ON t.consumer_no = r.no
WHERE r.channel_no = ?
  AND r.consumer_no IN (?...)
  AND t.message_id = ?
  AND r.after_id < t.message_id
  AND r.through_id >= t.message_id
  AND (r.consumer_no <> ? OR t.at_ms >= ?)
  AND t.attempt > 0
ORDER BY r.consumer_no, t.at_ms
LIMIT ?;

SELECT
    removed_id,
    removed,
    limit_code,
    at_ms
FROM kept_channels
WHERE channel_no = ?;

SELECT
    row_no,
    reason
FROM bulk_errors
WHERE bulk_id = ?
  AND row_no > ?
ORDER BY row_no
LIMIT ?;

SELECT
    scope,
    no,
    step,
    at_ms,
    writer,
    accepted,
    delivered,
    failed,
    dead,
    oldest_ms,
    acks,
    deliveries
FROM history
WHERE scope = ?
  AND no = ?
  AND step = ?
  AND at_ms >= ?
  AND at_ms < ?
ORDER BY at_ms;

SELECT
    scope,
    no,
    step,
    at_ms,
    writer,
    accepted,
    delivered,
    failed,
    dead,
    oldest_ms,
    acks,
    deliveries
FROM history
WHERE step = ?
  AND at_ms = ?
ORDER BY
    scope,
    no,
    writer
FOR UPDATE;

SELECT
    sink,
    event,
    consumer_no,
    channel_id,
    consumer_id,
    at_ms,
    reason,
    tries
FROM alerts
WHERE sink = ?
  AND next_ms <= ?
ORDER BY at_ms, consumer_no, event
LIMIT ?;

SELECT
    t.consumer_no,
    3,
    0,
    t.at_ms,
    t.attempts,
    t.status_code,
    t.duration_ms,
    t.node,
    0,
    0,
    0,
    NULL,
    NULL,
    t.worker
FROM deliveries t
WHERE t.consumer_no IN (?...)
  AND t.message_id = ?
  AND (t.consumer_no <> ? OR t.at_ms >= ?)
  AND 1 = 1
ORDER BY t.consumer_no, t.at_ms
LIMIT ?;

SELECT
    t.consumer_no,
    4,
    0,
    t.died_ms,
    t.attempts,
    t.status_code,
    NULL,
    NULL,
    0,
    t.reason_code,
    0,
    t.reason,
    NULL,
    NULL
FROM redrives t
WHERE t.consumer_no IN (?...)
  AND t.message_id = ?
  AND (t.consumer_no <> ? OR t.died_ms >= ?)
  AND 1 = 1
ORDER BY t.consumer_no, t.died_ms
LIMIT ?;

SELECT
    t.consumer_no,
    4,
    0,
    t.died_ms,
    t.attempts,
    t.status_code,
    NULL,
    NULL,
    0,
    t.reason_code,
    0,
    t.reason,
    NULL,
    t.worker
FROM dead_jobs t
WHERE t.consumer_no IN (?...)
  AND t.message_id = ?
  AND (t.consumer_no <> ? OR t.died_ms >= ?)
  AND 1 = 1
ORDER BY t.consumer_no, t.died_ms
LIMIT ?;

SELECT
    t.consumer_no,
    5,
    0,
    t.at_ms,
    0,
    0,
    NULL,
    NULL,
    0,
    0,
    t.how,
    NULL,
    NULL,
    NULL
FROM redrives t
WHERE t.consumer_no IN (?...)
  AND t.message_id = ?
  AND (t.consumer_no <> ? OR t.at_ms >= ?)
  AND 1 = 1
ORDER BY t.consumer_no, t.at_ms
LIMIT ?;

SELECT
    t.consumer_no,
    7,
    0,
    t.received_ms,
    t.attempt,
    t.status_code,
    NULL,
    NULL,
    0,
    0,
    0,
    CASE WHEN t.state = 4 THEN t.reason END,
    NULL,
    NULL
FROM exchanges t
WHERE t.consumer_no IN (?...)
  AND t.message_id = ?
  AND (t.consumer_no <> ? OR t.received_ms >= ?)
  AND t.received_ms > 0
ORDER BY t.consumer_no, t.received_ms
LIMIT ?;

SELECT
    t.consumer_no,
    8,
    0,
    t.ended_ms,
    t.attempt,
    t.status_code,
    NULL,
    NULL,
    0,
    0,
    0,
    CASE WHEN t.state = 4 THEN t.reason END,
    NULL,
    NULL
FROM exchanges t
WHERE t.consumer_no IN (?...)
  AND t.message_id = ?
  AND (t.consumer_no <> ? OR t.ended_ms >= ?)
  AND t.state = 3
ORDER BY t.consumer_no, t.ended_ms
LIMIT ?;

SELECT
    t.consumer_no,
    9,
    0,
    t.ended_ms,
    t.attempt,
    t.status_code,
    NULL,
    NULL,
    0,
    0,
    0,
    CASE WHEN t.state = 4 THEN t.reason END,
    NULL,
    NULL
FROM exchanges t
WHERE t.consumer_no IN (?...)
  AND t.message_id = ?
  AND (t.consumer_no <> ? OR t.ended_ms >= ?)
  AND t.state = 4
ORDER BY t.consumer_no, t.ended_ms
LIMIT ?;

SELECT
    t.consumer_no,
    CASE t.phase WHEN 3 THEN 2 WHEN 4 THEN 10 ELSE 1 END,
    0,
    t.at_ms,
    t.attempt,
    t.status_code,
    t.duration_ms,
    t.node,
    t.phase,
    0,
    0,
    t.error,
    t.answer,
    t.worker
FROM attempts t
WHERE t.consumer_no IN (?...)
  AND t.message_id = ?
  AND (t.consumer_no <> ? OR t.at_ms >= ?)
  AND t.attempt > 0
ORDER BY t.consumer_no, t.at_ms
LIMIT ?;

SELECT
    through_id,
    messages,
    bytes
FROM kept_stretches
WHERE channel_no = ?
  AND through_id = ?;

SELECT
    through_id,
    messages,
    bytes
FROM kept_stretches
WHERE channel_no = ?
ORDER BY through_id;

SELECT
    token,
    expires_ms
FROM nodes
WHERE no = ?;

SELECT
    ttl_ms,
    addressed,
    headers
FROM messages
WHERE channel_no = ?
  AND id = ?;

SELECT *
FROM (
SELECT
    id,
    producer_no,
    channel_no,
    due_ms,
    LENGTH(payload) + LENGTH(headers)
FROM scheduled FORCE INDEX (scheduled_turns)
WHERE status = 0
  AND due_ms <= ?
  AND producer_no = ?
  AND channel_no = ?
  AND due_ms >= ?
  AND (due_ms > ? OR id > ?)
ORDER BY due_ms, id
LIMIT ?
) t;

SELECT 1
FROM bulks
WHERE state = ?
  AND paused = 0
  AND producer_no = ?
  AND lease_ms <= ?
  AND next_ms <= ?
ORDER BY next_ms, id
LIMIT 1;

SELECT CAST(UNIX_TIMESTAMP(SYSDATE(3)) * 1000 AS SIGNED);

SELECT COALESCE(
    (
        SELECT due_ms
        FROM scheduled
        WHERE channel_no = ?
          AND status = 0
        ORDER BY due_ms
        LIMIT 1
    ),
    0
);

SELECT COALESCE(
    (
        SELECT due_ms
        FROM scheduled
        WHERE status = 0
          AND due_ms > ?
        ORDER BY due_ms
        LIMIT 1
    ),
    0
);

SELECT COALESCE(CURRENT_ROLE(), 'NONE');

SELECT COALESCE(MAX(at_ms), ?)
FROM (
    SELECT at_ms
    FROM history_marks
    ORDER BY at_ms DESC, no DESC
    LIMIT 1 OFFSET ?
) m;

SELECT COALESCE(MAX(no) + 1, 0)
FROM nodes;

SELECT COALESCE(MAX(no), 0)
FROM (
    SELECT MAX(no) AS no
    FROM consumers
    UNION ALL
    SELECT MAX(no)
    FROM replays
) numbers;

SELECT COALESCE(MAX(no), 0)
FROM channel_groups;

SELECT COALESCE(MAX(no), 0)
FROM channels;

SELECT COALESCE(MAX(no), 0)
FROM producers;

SELECT COALESCE(MAX(version_id), 0)
FROM goose_db_version;

SELECT COALESCE(MAX(writers), 0)
FROM (
    SELECT COUNT(*) AS writers
    FROM history
    WHERE step = ?
      AND at_ms = ?
    GROUP BY
        scope,
        no
) w;

SELECT COALESCE(MIN(at_ms), ?)
FROM history
WHERE step = ?;

SELECT COALESCE(MIN(at_ms), ?)
FROM history
WHERE step = ?
  AND at_ms > ?;

SELECT COALESCE(MIN(next_ms), 0)
FROM alerts
WHERE sink = ?
  AND next_ms > ?;

SELECT COALESCE(MIN(no), -1)
FROM bulk_chunks
WHERE bulk_id = ?;

SELECT COALESCE(MIN(producer_no), 0)
FROM status_events
WHERE producer_no > ?;

SELECT COALESCE(SUM(delivered), 0)
FROM bulk_steps
WHERE bulk_id = ?
  AND complete = 1;

SELECT COALESCE(SUM(jobs), 0)
FROM dead_groups
WHERE consumer_no = ?
  AND (? = 0 OR fingerprint = ?);

SELECT COUNT(*)
    FROM open_jobs o
    WHERE o.consumer_no = ?
      AND o.message_id > ?
      AND o.message_id <= ?
      AND NOT EXISTS (SELECT 1 FROM deliveries v WHERE v.consumer_no = o.consumer_no AND v.message_id = o.message_id)
      AND NOT EXISTS (SELECT 1 FROM dead_jobs d WHERE d.consumer_no = o.consumer_no AND d.message_id = o.message_id);

SELECT COUNT(*)
FROM (
    SELECT 1
    FROM messages
    WHERE channel_no = ?
    LIMIT ?
) counted;

SELECT COUNT(*)
FROM (
    SELECT 1
    FROM scheduled
    WHERE channel_no = ?
      AND status = ?
    LIMIT ?
) counted;

SELECT COUNT(*)
FROM (
    SELECT died_ms
    FROM dead_jobs
    WHERE consumer_no = ?
    ORDER BY message_id DESC
    LIMIT ?
) x
WHERE died_ms > ?;

SELECT COUNT(*)
FROM api_tokens;

SELECT COUNT(*)
FROM audit
WHERE deed = ?;

SELECT COUNT(*)
FROM channels
WHERE group_id = ?
  AND deleted_no = 0;

SELECT COUNT(*)
FROM channels c
JOIN nodes n
  ON n.no = ?
WHERE c.no = ?
  AND c.paused = 0
  AND n.token = ?
  AND n.least_version <= ?;

SELECT COUNT(*)
FROM consumers
WHERE channel_no = ?
  AND deleted_no = 0;

SELECT COUNT(*)
FROM dead_groups
WHERE consumer_no = ?;

SELECT COUNT(*)
FROM dead_jobs d
WHERE d.consumer_no = ?
  AND d.message_id BETWEEN ? AND ?
  AND NOT EXISTS (
      SELECT 1
      FROM deliveries v
      WHERE v.consumer_no = d.consumer_no
        AND v.message_id = d.message_id
  );

SELECT COUNT(*)
FROM deliveries
WHERE consumer_no = ?
  AND message_id > ?
  AND message_id <= ?;

SELECT COUNT(*)
FROM deliveries
WHERE consumer_no = ?
  AND message_id BETWEEN ? AND ?;

SELECT COUNT(*)
FROM information_schema.tables
WHERE table_schema = DATABASE()
  AND table_name = 'goose_db_version';

SELECT COUNT(*)
FROM messages
WHERE channel_no = ?
  AND id BETWEEN ? AND ?
  AND (audience > ? OR id > ?)
  AND (addressed IS NULL OR SUBSTR(HEX(addressed), ?, 1) IN (?...))
  AND NOT (left_out IS NOT NULL AND SUBSTR(HEX(left_out), ?, 1) IN (?...));

SELECT COUNT(*)
FROM scheduled
WHERE id = ?;

SELECT COUNT(*)
FROM scheduled
WHERE id = ?
  AND changed_ms >= ?;

SELECT COUNT(*)
FROM sqs_keys
WHERE channel_no = ?;

SELECT COUNT(*) > 0 AND COUNT(CASE WHEN column_name = 'deleted_no' THEN 1 END) = 0
FROM information_schema.columns
WHERE table_schema = DATABASE()
  AND table_name = 'producers';

SELECT DATABASE();

SELECT DISTINCT store
FROM places
WHERE store <> ?;

SELECT GET_LOCK(CONCAT('penstock ', SHA1(DATABASE())), 2);

SELECT MAX(at_ms)
FROM (
    SELECT at_ms
    FROM deliveries
    WHERE consumer_no = ?
    ORDER BY message_id DESC
    LIMIT ?
) v;

SELECT MAX(id)
FROM messages
WHERE channel_no = ?;

SELECT MAX(message_id)
FROM marks;

SELECT MIN(after_id)
FROM books
WHERE consumer_no = ?
  AND after_id >= ?
  AND after_id < ?
  AND through_id <= ?;

SELECT MIN(after_id)
FROM books
WHERE consumer_no = ?
  AND through_id > ?;

SELECT MIN(inv_priority)
FROM prioritised
WHERE channel_no = ?
  AND inv_priority >= ?;

SELECT RELEASE_LOCK(CONCAT('penstock ', SHA1(DATABASE())));

SELECT VERSION();

SELECT attempts_ms
FROM kept_channels
WHERE channel_no = ?;

SELECT b.id
FROM bulks b
JOIN producers p
  ON p.no = b.producer_no
JOIN channels c
  ON c.no = b.channel_no
WHERE b.state IN (1, 2)
  AND (p.deleted_no <> 0 OR c.deleted_no <> 0)
LIMIT 1;

SELECT body
FROM bulk_chunks
WHERE bulk_id = ?
  AND no = ?;

SELECT callback_url
FROM consumers
WHERE no = ?
  AND deleted_no = 0
FOR UPDATE;

SELECT consumer_no
FROM dead_jobs
WHERE consumer_no > ?
ORDER BY consumer_no
LIMIT 1;

SELECT counted_id
FROM kept_channels
WHERE channel_no = ?
FOR UPDATE;

SELECT deleted_no <> 0
FROM channels
WHERE no = ?
LOCK IN SHARE MODE;

SELECT deleted_no <> 0
FROM consumers
WHERE no = ?
FOR UPDATE;

SELECT digest
FROM ordered
WHERE channel_no = ?
  AND message_id IN (?...);

SELECT failures_ms
FROM consumers
WHERE no = ?;

SELECT fingerprint
FROM dead_groups
WHERE consumer_no = ?
  AND fingerprint IN (?...);

SELECT first_id
FROM bulk_steps
WHERE bulk_id = ?
ORDER BY first_id
LIMIT ?;

SELECT id
FROM bulks
WHERE state = 0
  AND lease_ms < ?
LIMIT ?;

SELECT id
FROM bulks
WHERE state > 2
  AND changed_ms < ?
  AND (? > 0 OR chunks > 0)
ORDER BY id
LIMIT ?;

SELECT id
FROM bulks
WHERE state IN (0, 1, 2)
  AND channel_no = ?;

SELECT id
FROM bulks
WHERE state IN (0, 1, 2)
  AND producer_no = ?;

SELECT id
FROM channels
WHERE no = ?;

SELECT id
FROM idempotency_keys
WHERE id < ?
ORDER BY id
LIMIT ?;

SELECT id
FROM message_keys
WHERE channel_no = ?
  AND msg_key = ?;

SELECT id
FROM receipts
WHERE id < ?
ORDER BY id
LIMIT ?;

SELECT id
FROM scheduled
WHERE channel_no = ?
LIMIT ?;

SELECT id
FROM scheduled
WHERE producer_no = ?
  AND status = 0
LIMIT ?;

SELECT id
FROM scheduled
WHERE status = 1
  AND due_ms < ?
ORDER BY due_ms
LIMIT ?;

SELECT message_id
FROM attempts
WHERE consumer_no = ?
  AND message_id > ?
  AND message_id <= ?
ORDER BY message_id;

SELECT message_id
FROM awaiting_replies
WHERE consumer_no = ?
  AND message_id > ?
  AND message_id <= ?
ORDER BY message_id;

SELECT message_id
FROM dead_jobs
WHERE consumer_no = ?
  AND message_id > ?
  AND message_id <= ?
  AND (died_ms < ? OR disposal = 2)
FOR UPDATE;

SELECT message_id
FROM dead_jobs
WHERE consumer_no = ?
  AND message_id > ?
  AND message_id <= ?
ORDER BY message_id;

SELECT message_id
FROM dead_jobs
WHERE consumer_no = ?
  AND message_id IN (?...)
ORDER BY message_id;

SELECT message_id
FROM deliveries
WHERE consumer_no = ?
  AND message_id > ?
  AND message_id <= ?;

SELECT message_id
FROM deliveries
WHERE consumer_no = ?
  AND message_id IN (?...);

SELECT message_id
FROM exchanges
WHERE consumer_no = ?
  AND message_id > ?
  AND message_id <= ?
  AND (state = 1 OR state = 2 AND goes_back = 1)
  AND delivered_ms >= ?;

SELECT message_id
FROM exchanges
WHERE consumer_no = ?
  AND message_id > ?
  AND message_id <= ?
ORDER BY message_id;

SELECT message_id
FROM marks
WHERE consumer_no = ?;

SELECT message_id
FROM open_jobs
WHERE consumer_no = ?
  AND message_id > ?
  AND message_id <= ?
ORDER BY message_id;

SELECT message_id
FROM open_jobs
WHERE consumer_no = ?
  AND message_id IN (?...)
ORDER BY message_id;

SELECT message_id
FROM redrives
WHERE consumer_no = ?
  AND message_id > ?
  AND message_id <= ?
ORDER BY message_id;

SELECT msg_key
FROM message_keys
WHERE channel_no = ?
  AND msg_key IN (?...)
LOCK IN SHARE MODE;

SELECT no
FROM audit
WHERE at_ms < ?
ORDER BY at_ms DESC, no DESC
LIMIT 1;

SELECT no
FROM audit
WHERE at_ms >= ?
ORDER BY at_ms, no
LIMIT 1;

SELECT no
FROM channels
WHERE no = ?
FOR UPDATE;

SELECT no
FROM nodes
WHERE expires_ms <= ?
ORDER BY no
LIMIT 1;

SELECT producer_no
FROM awaiting_replies
WHERE producer_no > ?
ORDER BY producer_no
LIMIT 1;

SELECT producer_no
FROM bulks
WHERE state = ?
  AND paused = 0
  AND producer_no > ?
ORDER BY producer_no
LIMIT 1;

SELECT t.message_id
FROM dead_jobs t
LEFT JOIN messages m
    ON m.channel_no = ?
   AND m.id = t.message_id
WHERE t.consumer_no = ?
  AND t.message_id > ?
  AND t.message_id <= ?
  AND m.id IS NULL
ORDER BY t.message_id
LIMIT ?;

SELECT t.message_id
FROM deliveries t
LEFT JOIN messages m
    ON m.channel_no = ?
   AND m.id = t.message_id
WHERE t.consumer_no = ?
  AND t.message_id > ?
  AND t.message_id <= ?
  AND m.id IS NULL
ORDER BY t.message_id
LIMIT ?;

SELECT t.message_id
FROM open_jobs t
LEFT JOIN messages m
    ON m.channel_no = ?
   AND m.id = t.message_id
WHERE t.consumer_no = ?
  AND t.message_id > ?
  AND t.message_id <= ?
  AND m.id IS NULL
ORDER BY t.message_id
LIMIT ?;

SELECT through_id
FROM stored_marks
WHERE channel_no = ?
FOR UPDATE;

SELECT times
FROM failures
WHERE consumer_no = ?
FOR UPDATE;

SELECT value
FROM settings
WHERE name = 'catalogue';

SELECT value
FROM settings
WHERE name = ?;

SELECT version
FROM consumers
WHERE no = ?
FOR UPDATE;

SET
    SESSION sql_mode = 'STRICT_TRANS_TABLES,NO_ZERO_IN_DATE,NO_ZERO_DATE,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION',
    SESSION time_zone = '+00:00',
    SESSION autocommit = 1,
    SESSION completion_type = 0,
    SESSION unique_checks = 1,
    SESSION sql_safe_updates = 0,
    SESSION sql_select_limit = 18446744073709551615,
    SESSION character_set_client = binary,
    SESSION character_set_connection = binary,
    SESSION character_set_results = binary,
    SESSION innodb_lock_wait_timeout = 5,
    SESSION lock_wait_timeout = 10,
    SESSION wait_timeout = 60;

SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE;

SET SESSION wait_timeout = 8, SESSION net_read_timeout = 8;

SET SESSION wsrep_sync_wait = 7;

SHOW GLOBAL STATUS
WHERE Variable_name IN (
    'Rpl_semi_sync_master_status',
    'Rpl_semi_sync_master_clients',
    'Rpl_semi_sync_master_no_tx',
    'Rpl_semi_sync_source_status',
    'Rpl_semi_sync_source_clients',
    'Rpl_semi_sync_source_no_tx'
);

SHOW GLOBAL VARIABLES
WHERE Variable_name IN (
    'version_comment',
    'max_allowed_packet',
    'innodb_flush_log_at_trx_commit',
    'innodb_doublewrite',
    'sync_binlog',
    'log_bin',
    'wsrep_on',
    'group_replication_group_name',
    'group_replication_single_primary_mode'
);

SHOW GRANTS;

SHOW SESSION VARIABLES
WHERE Variable_name IN (
    'sql_mode',
    'time_zone',
    'autocommit',
    'completion_type',
    'unique_checks',
    'sql_log_bin',
    'sql_select_limit',
    'character_set_client',
    'character_set_connection',
    'character_set_results',
    'tx_isolation',
    'transaction_isolation',
    'tx_read_only',
    'transaction_read_only',
    'wsrep_on',
    'wsrep_sync_wait'
);

START TRANSACTION;

UPDATE alerts
SET
    tries = tries + 1,
    next_ms = ?
WHERE sink = ?
  AND at_ms = ?
  AND consumer_no = ?
  AND event = ?
  AND tries = ?;

UPDATE api_tokens
SET scopes = ?
WHERE id = ?;

UPDATE api_tokens
SET used_ms = ?
WHERE id = ?
  AND used_ms < ?;

UPDATE audit_head
SET
    no = ?,
    at_ms = ?,
    hash = ?
WHERE one = 1;

UPDATE books
SET
    through_id = ?,
    accepted = accepted + ?,
    filtered = filtered + ?,
    delivered = delivered + ?
WHERE consumer_no = ?
  AND after_id = ?;

UPDATE books
SET delivered = ?
WHERE consumer_no = ?
  AND after_id = ?
  AND through_id = ?
  AND delivered = ?;

UPDATE bulk_steps
SET
    complete = 1,
    delivered = ?
WHERE bulk_id = ?
  AND first_id = ?;

UPDATE bulks
SET
    chunks = 0,
    bytes = 0
WHERE id = ?;

UPDATE bulks
SET
    chunks = chunks + 1,
    bytes = bytes + ?,
    lease_ms = ?
WHERE id = ?;

UPDATE bulks
SET
    owner = ?,
    fence = fence + 1,
    lease_ms = ?
WHERE id = ?;

UPDATE bulks
SET
    owner = ?,
    lease_ms = 0,
    next_ms = ?,
    tries = ?,
    reason = ?
WHERE id = ?;

UPDATE bulks
SET
    paused = ?,
    owner = ?,
    lease_ms = 0,
    changed_ms = ?
WHERE id = ?;

UPDATE bulks
SET
    state = 2,
    owner = ?,
    lease_ms = 0,
    next_ms = 0,
    tries = 0,
    total = ?,
    changed_ms = ?,
    reason = ''
WHERE id = ?;

UPDATE bulks
SET
    state = ?,
    lease_ms = ?,
    next_ms = ?,
    total = ?,
    row_no = ?,
    byte_pos = ?,
    published = published + ?,
    rejected = rejected + ?,
    duplicates = duplicates + ?,
    speed = ?,
    changed_ms = ?
WHERE id = ?;

UPDATE bulks
SET
    state = ?,
    owner = ?,
    paused = 0,
    lease_ms = 0,
    next_ms = 0,
    changed_ms = ?,
    reason = ?
WHERE id = ?;

UPDATE bulks
SET
    state = ?,
    owner = ?,
    paused = 0,
    lease_ms = 0,
    next_ms = 0,
    changed_ms = ?,
    reason = ?
WHERE id = ?
  AND state IN (0, 1, 2);

UPDATE bulks
SET chunks = 0
WHERE id = ?;

UPDATE bulks
SET lease_ms = ?
WHERE id = ?;

UPDATE channel_groups
SET
    deleted_no = no,
    version = ?
WHERE no = ?;

UPDATE channel_groups
SET
    name = ?,
    max_channels = ?,
    settings = ?,
    changed_ms = ?,
    version = ?
WHERE no = ?;

UPDATE channel_groups
SET
    paused = ?,
    version = ?
WHERE no = ?;

UPDATE channels
SET
    audience = ?,
    version = ?
WHERE no = ?;

UPDATE channels
SET
    deleted_no = no,
    paused = 1,
    version = ?
WHERE no = ?;

UPDATE channels
SET
    group_id = ?,
    paused = ?
WHERE no = ?;

UPDATE channels
SET
    name = ?,
    token = ?,
    changed_ms = ?,
    version = ?,
    former_token = ?,
    former_until_ms = ?
WHERE no = ?;

UPDATE channels
SET
    paused = (paused & 1) + ?,
    version = ?
WHERE group_id = ?
  AND deleted_no = 0;

UPDATE channels
SET
    paused = ?,
    version = ?
WHERE no = ?;

UPDATE channels
SET
    shape = shape + 1,
    version = ?
WHERE no = ?;

UPDATE channels
SET
    token = ?,
    former_token = ?
WHERE no = ?
  AND version = ?;

UPDATE channels
SET intake = ?
WHERE no = ?;

UPDATE channels
SET version = ?
WHERE no = ?;

UPDATE clock
SET
    ms = ?,
    ahead_ms = ?,
    steps = ?,
    beat = ?,
    history = ?
WHERE no = 0
  AND beat = ?
  AND history = ?;

UPDATE consumers
SET
    deleted_no = no,
    until_id = ?,
    token = ?,
    policy = ?,
    state = ?,
    state_reason = ?,
    state_ms = ?,
    version = ?
WHERE no = ?;

UPDATE consumers
SET
    name = ?,
    token = ?,
    callback_url = ?,
    type = ?,
    protocol = ?,
    policy = ?,
    changed_ms = ?,
    version = ?,
    former_token = ?,
    former_until_ms = ?
WHERE no = ?;

UPDATE consumers
SET
    state = ?,
    state_reason = ?,
    state_ms = ?,
    probe_ms = 0,
    version = ?
WHERE no = ?;

UPDATE consumers
SET
    token = ?,
    former_token = ?,
    policy = ?,
    since_policy = ?
WHERE no = ?
  AND version = ?;

UPDATE consumers
SET failures_ms = ?
WHERE no = ?;

UPDATE consumers
SET probe_ms = 0
WHERE no = ?
  AND probe_ms = ?;

UPDATE consumers
SET probe_ms = ?
WHERE no = ?
  AND state = ?
  AND probe_ms < ?;

UPDATE dead_groups
SET jobs = jobs - ?
WHERE consumer_no = ?
  AND fingerprint = ?;

UPDATE dead_groups
SET sample_id = COALESCE((
    SELECT d.message_id
    FROM dead_jobs d
    WHERE d.consumer_no = dead_groups.consumer_no
      AND d.fingerprint = dead_groups.fingerprint
      AND d.disposal <> 2
    ORDER BY d.message_id DESC
    LIMIT 1
), sample_id)
WHERE consumer_no = ?
  AND fingerprint = ?
  AND sample_id IN (?...);

UPDATE dead_jobs
SET disposal = ?
WHERE consumer_no = ?
  AND message_id = ?
  AND died_ms = ?
  AND disposal <> 2;

UPDATE exchanges
SET
    due_ms = ?,
    reason = ?,
    headers = ?,
    body = ?
WHERE consumer_no = ?
  AND due_ms <= ?
  AND message_id IN (?...);

UPDATE exchanges
SET
    due_ms = ?,
    tries = tries + ?
WHERE consumer_no = ?
  AND state = ?
  AND message_id IN (?...);

UPDATE exchanges
SET
    state = 3,
    ended_ms = ?,
    due_ms = CASE WHEN keep_ms > 0 THEN keep_ms + ? ELSE ? END
WHERE consumer_no = ?
  AND message_id = ?
  AND state = 2;

UPDATE exchanges
SET
    state = ?,
    status_code = ?,
    truncated = ?,
    received_ms = ?,
    ended_ms = ?,
    due_ms = ?,
    tries = ?,
    url = ?,
    reason = ?,
    headers = ?,
    body = ?
WHERE consumer_no = ?
  AND message_id = ?
  AND state = ?;

UPDATE exchanges
SET due_ms = 1
WHERE consumer_no = ?
  AND state = 2
  AND message_id IN (?...);

UPDATE exchanges
SET due_ms = CASE
    WHEN keep_ms = 0 AND ? = 0 THEN ?
    WHEN received_ms + (CASE WHEN keep_ms > 0 THEN keep_ms ELSE ? END) > ?
      THEN received_ms + (CASE WHEN keep_ms > 0 THEN keep_ms ELSE ? END)
    ELSE ? + ? - received_ms + 60000
  END
WHERE consumer_no = ?
  AND state = 2
  AND message_id IN (?...);

UPDATE failures
SET times = ?
WHERE consumer_no = ?;

UPDATE holds
SET
    since_ms = ?,
    until_ms = ?,
    held_by = ?
WHERE consumer_no = ?
  AND until_ms < ?;

UPDATE kept_channels
SET
    removed_id = CASE WHEN removed_id < ? THEN ? ELSE removed_id END,
    removed = removed + ?,
    limit_code = ?,
    at_ms = ?
WHERE channel_no = ?;

UPDATE kept_channels
SET attempts_ms = ?
WHERE channel_no = ?
  AND attempts_ms < ?;

UPDATE kept_channels
SET counted_id = ?
WHERE channel_no = ?;

UPDATE kept_stretches
SET
    through_id = ?,
    messages = ?,
    bytes = ?
WHERE channel_no = ?
  AND through_id = ?;

UPDATE marks
SET message_id = ?
WHERE message_id > ?;

UPDATE marks
SET message_id = ?
WHERE message_id > ?
  AND consumer_no = ?;

UPDATE messages
SET
    left_out = ?
WHERE channel_no = ?
  AND id = ?;

UPDATE migration_lease
SET
    token = ?,
    expires_ms = CAST(UNIX_TIMESTAMP(SYSDATE(3)) * 1000 AS SIGNED) + ?
WHERE no = 0
  AND (token = ? OR expires_ms < CAST(UNIX_TIMESTAMP(SYSDATE(3)) * 1000 AS SIGNED));

UPDATE migration_lease
SET expires_ms = 0
WHERE no = 0
  AND token = ?;

UPDATE nodes
SET
    name = ?,
    token = ?,
    expires_ms = ?
WHERE no = ?
  AND expires_ms <= ?;

UPDATE nodes
SET expires_ms = 0;

UPDATE nodes
SET expires_ms = ?
WHERE no = ?
  AND token = ?;

UPDATE nodes
SET expires_ms = ?
WHERE no = ?
  AND token = ?
  AND (expires_ms >= ? OR expires_ms = 0);

UPDATE nodes
SET least_version = ?;

UPDATE open_jobs
SET next_ms = ?
WHERE consumer_no = ?
  AND message_id IN (?...)
  AND next_ms > ?;

UPDATE paces
SET
    mode = ?,
    rate = ?,
    good = ?,
    strained = ?,
    since_ms = ?
WHERE consumer_no = ?;

UPDATE places
SET
    store = ?,
    at_ms = ?
WHERE channel_id = ?
  AND store = ?
  AND at_ms = ?;

UPDATE prioritised
SET
    left_out = ?
WHERE channel_no = ?
  AND inv_priority = ?
  AND id = ?;

UPDATE producers
SET
    deleted_no = no,
    publish_secret = ?,
    settings = NULL,
    version = ?
WHERE no = ?;

UPDATE producers
SET
    name = ?,
    token = ?,
    changed_ms = ?,
    version = ?,
    former_token = ?,
    former_until_ms = ?
WHERE no = ?;

UPDATE producers
SET
    publish_secret = ?,
    settings = ?
WHERE no = ?;

UPDATE producers
SET
    token = ?,
    former_token = ?,
    publish_secret = ?,
    settings = ?
WHERE no = ?
  AND version = ?;

UPDATE redrivings
SET
    busy = ?,
    state = ?,
    replay_no = ?,
    state_ms = ?,
    reason = ?,
    cursor_id = ?,
    redriven = ?,
    delivered = ?,
    dead = ?,
    stage = ?,
    stage_ms = ?,
    stage_jobs = ?,
    stage_over = ?,
    stage_again = ?
WHERE consumer_no = ?
  AND no = ?;

UPDATE replays
SET
    settled_id = ?,
    jobs = jobs + ?,
    job_bytes = job_bytes + ?
WHERE no = ?
  AND settled_id = ?
  AND state < 2;

UPDATE replays
SET
    state = 3,
    state_ms = ?,
    version = ?
WHERE channel_no = ?
  AND consumer_no = ?
  AND state < 2;

UPDATE replays
SET
    state = ?,
    state_ms = ?,
    matched = ?,
    bytes = ?,
    estimated = ?,
    delivered = ?,
    dead = ?,
    version = ?
WHERE no = ?;

UPDATE rhythms
SET since_ms = ?
WHERE channel_no = ?;

UPDATE rhythms
SET since_ms = ?
WHERE channel_no IN (
    SELECT no
    FROM channels
    WHERE group_id = ?
      AND deleted_no = 0
);

UPDATE scheduled
SET
    due_ms = ?,
    occurrence = ?,
    message_id = ?
WHERE id = ?;

UPDATE scheduled
SET
    due_ms = ?,
    occurrence = ?,
    recurrence = ?,
    delay_ms = ?,
    changed_ms = ?,
    sent_before = ?
WHERE id = ?;

UPDATE scheduled
SET
    priority = ?,
    ttl_ms = ?,
    content_type = ?,
    headers = ?,
    payload = ?,
    addressed = ?
WHERE id = ?;

UPDATE scheduled
SET
    status = 1,
    message_id = CASE id
        WHEN ? THEN ?
    END
WHERE id IN (?...);

UPDATE scheduled
SET due_ms = ?
WHERE status = 0
  AND due_ms <= ?
  AND id IN (?...);

UPDATE secrets
SET secret = ?
WHERE name = ?;

UPDATE settings
SET value = ?
WHERE name = ?
  AND value = ?;

UPDATE settings
SET value = GREATEST(value + 1, ?)
WHERE name = 'catalogue';

UPDATE settings
SET value = value + 1
WHERE name = 'nodes';

UPDATE sqs_keys
SET secret = ?
WHERE id = ?
  AND channel_no = ?;

UPDATE stored_marks
SET through_id = ?
WHERE channel_no = ?;

UPDATE stored_sums
SET
    messages = CASE WHEN messages > ? THEN messages - ? ELSE 0 END,
    bytes = CASE WHEN bytes > ? THEN bytes - ? ELSE 0 END
WHERE producer_no = ?;

WITH RECURSIVE chain (depth, id) AS (
    SELECT
        1,
        prev_id
    FROM ordered
    WHERE channel_no = ?
      AND message_id = ?
    UNION ALL
    SELECT
        chain.depth + 1,
        b.prev_id
    FROM chain
    JOIN ordered b
      ON b.channel_no = ?
      AND b.message_id = chain.id
    WHERE chain.depth < ?
)
SELECT
    c.version,
    c.state,
    (ch.paused & 1) <> 0,
    (ch.paused & 2) <> 0,
    COALESCE(f.attempt_ms, 0),
    COALESCE(f.success_ms, 0),
    COALESCE(f.status_code, 0),
    f.error,
    COALESCE(f.claim_ms, 0),
    COALESCE(h.since_ms, 0),
    COALESCE(h.until_ms, 0),
    h.held_by,
    COALESCE(p.mode, 0),
    COALESCE(p.rate, 0),
    COALESCE(p.since_ms, 0),
    w.message_id,
    c.no,
    m.id,
    m.audience,
    m.priority,
    m.addressed,
    m.left_out,
    m.producer_no,
    CASE WHEN v.message_id IS NOT NULL THEN 3 WHEN d.message_id IS NOT NULL THEN 2 WHEN o.message_id IS NOT NULL THEN 1 ELSE 0 END,
    COALESCE(v.attempts, d.attempts, o.attempts, 0),
    COALESCE(v.at_ms, d.died_ms, o.changed_ms, 0),
    COALESCE(o.next_ms, 0),
    COALESCE(v.status_code, d.status_code, o.status_code, 0),
    COALESCE(d.reason, o.error),
    COALESCE(d.reason_code, 0),
    COALESCE(o.given_back, 0),
    CASE WHEN o.given_back > 0 AND EXISTS (SELECT 1 FROM attempts a WHERE a.consumer_no = c.no AND a.message_id = m.id AND a.at_ms = o.changed_ms AND a.phase = 4) THEN 1 ELSE 0 END,
    COALESCE(kc.attempts_ms, 0),
    CASE WHEN kc.attempts_ms > 0 AND COALESCE(v.message_id, d.message_id) IS NOT NULL THEN (SELECT COUNT(*) FROM attempts a WHERE a.consumer_no = c.no AND a.message_id = m.id) + CASE WHEN v.message_id IS NULL OR EXISTS (SELECT 1 FROM attempts a WHERE a.consumer_no = c.no AND a.message_id = m.id AND a.at_ms = v.at_ms AND a.attempt = v.attempts AND a.status_code BETWEEN 200 AND 299) THEN 0 ELSE 1 END ELSE 0 END
FROM chain
JOIN messages m
  ON m.channel_no = ?
  AND m.id = chain.id
JOIN consumers c
  ON c.no = ?
JOIN channels ch
  ON ch.no = c.channel_no
LEFT JOIN consumer_facts f
  ON f.consumer_no = c.no
LEFT JOIN holds h
  ON h.consumer_no = c.no
LEFT JOIN paces p
  ON p.consumer_no = c.no
LEFT JOIN marks w
  ON w.consumer_no = c.no
LEFT JOIN kept_channels kc
  ON kc.channel_no = c.channel_no
LEFT JOIN deliveries v
  ON v.consumer_no = c.no
  AND v.message_id = m.id
LEFT JOIN dead_jobs d
  ON d.consumer_no = c.no
  AND d.message_id = m.id
LEFT JOIN open_jobs o
  ON o.consumer_no = c.no
  AND o.message_id = m.id
WHERE v.message_id IS NULL
  AND (d.message_id IS NULL OR (? = 1 AND d.disposal <> 2))
  AND (m.audience > ? OR m.id > ?)
  AND (m.addressed IS NULL OR SUBSTR(HEX(m.addressed), ?, 1) IN (?...))
  AND NOT (m.left_out IS NOT NULL AND SUBSTR(HEX(m.left_out), ?, 1) IN (?...))
ORDER BY chain.depth DESC
LIMIT 1;

