package durable

// A stepSource is a query for the steps of one message in one table. Its arguments are those of
// StepPage.args.
type stepSource struct {
	query   string
	channel bool // the arguments begin with the channel
}

// The columns of steps after the consumer, of tables of outcomes. Those of a replay are taken from
// the same tables, with the number of the replay as that of the consumer.
const (
	attemptColumns = `
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
    t.worker`

	deliveryColumns = `
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
    t.worker`

	redriveColumns = `
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
    `

	deathColumns, pastDeathColumns = redriveColumns + "t.worker", redriveColumns + "NULL"

	always = `1 = 1`

	attemptKind = `CASE t.phase WHEN 3 THEN 2 WHEN 4 THEN 10 ELSE 1 END`
)

// stepSources are the tables that tell what became of jobs. Each of them has one entry here, which
// is all that a timeline needs of it. The columns are those of scanStep, in its order.
var stepSources = []stepSource{
	newStepSource("attempts", "at_ms", attemptKind, attemptColumns, "t.attempt > 0"),
	newStepSource("deliveries", "at_ms", "3", deliveryColumns, always),
	newStepSource("dead_jobs", "died_ms", "4", deathColumns, always),
	newStepSource("redrives", "died_ms", "4", pastDeathColumns, always),
	newStepSource("redrives", "at_ms", "5", `
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
    NULL`, always),
	newReplaySource("attempts", "at_ms", attemptKind, attemptColumns, "t.attempt > 0"),
	newReplaySource("deliveries", "at_ms", "6", deliveryColumns, always),
	newReplaySource("dead_jobs", "died_ms", "6", deathColumns, always),
	newExchangeSource("received_ms", "7", "t.received_ms > 0"),
	newExchangeSource("ended_ms", "8", "t.state = 3"),
	newExchangeSource("ended_ms", "9", "t.state = 4"),
}

// newStepSource returns the source of a table with rows of jobs.
func newStepSource(table, at, kind, columns, only string) stepSource {
	return stepSource{query: `
SELECT
    t.consumer_no,
    ` + kind + `,
    0,` + columns + `
FROM ` + table + ` t
WHERE t.consumer_no IN (?...)
  AND t.message_id = ?
  AND (t.consumer_no <> ? OR t.` + at + ` >= ?)
  AND ` + only + `
ORDER BY t.consumer_no, t.` + at + `
LIMIT ?`}
}

// newReplaySource returns the source of a table with rows of jobs of replays. Each replay whose
// stretch has the message costs a look-up by key.
func newReplaySource(table, at, kind, columns, only string) stepSource {
	return stepSource{channel: true, query: `
SELECT
    r.consumer_no,
    ` + kind + `,
    r.no,` + columns + `
FROM replays r
JOIN ` + table + ` t ON t.consumer_no = r.no
WHERE r.channel_no = ?
  AND r.consumer_no IN (?...)
  AND t.message_id = ?
  AND r.after_id < t.message_id
  AND r.through_id >= t.message_id
  AND (r.consumer_no <> ? OR t.` + at + ` >= ?)
  AND ` + only + `
ORDER BY r.consumer_no, t.` + at + `
LIMIT ?`}
}

// newExchangeSource returns the source of one state of exchanges.
func newExchangeSource(at, kind, only string) stepSource {
	return newStepSource("exchanges", at, kind, `
    t.`+at+`,
    t.attempt,
    t.status_code,
    NULL,
    NULL,
    0,
    0,
    0,
    CASE WHEN t.state = 4 THEN t.reason END,
    NULL,
    NULL`, only)
}
