package durable

import (
	"context"

	"github.com/penstock-broker/penstock/internal/model/ident"
)

// A Fact is what the attempts of a consumer, and the claims of its workers, have shown last. Each
// broker knows its own, and writes them within seconds; of several the newest attempt counts.
type Fact struct {
	ConsumerNo uint32
	AttemptMs  int64 // end of the last attempt, Unix ms; 0: none is known
	SuccessMs  int64 // end of the last one that delivered
	StatusCode int   // answer to the last attempt, 0 without
	Error      string
	ClaimMs    int64 // last claim of a worker, Unix ms; 0: none is known
}

// maxFactError is the width of the column.
const maxFactError = 255

// Newer returns the newer parts of two facts of a consumer.
func (f Fact) Newer(other Fact) Fact {
	if other.AttemptMs > f.AttemptMs {
		f, other = other, f
	}
	f.SuccessMs, f.ClaimMs = max(f.SuccessMs, other.SuccessMs), max(f.ClaimMs, other.ClaimMs)
	return f
}

func (f *Fact) columns() columns {
	return columns{
		{"consumer_no", &f.ConsumerNo},
		{"attempt_ms", &f.AttemptMs},
		{"success_ms", &f.SuccessMs},
		{"status_code", &f.StatusCode},
		{"error", asBytes{&f.Error}},
		{"claim_ms", &f.ClaimMs},
	}
}

// attempt_ms comes last, because the conditions before it need its stored value.
var insertFacts = statement{
	mysql: new(Fact).columns().inserts("consumer_facts") + `
ON DUPLICATE KEY UPDATE
    status_code = IF(VALUES(attempt_ms) >= attempt_ms, VALUES(status_code), status_code),
    error = IF(VALUES(attempt_ms) >= attempt_ms, VALUES(error), error),
    success_ms = GREATEST(success_ms, VALUES(success_ms)),
    claim_ms = GREATEST(claim_ms, VALUES(claim_ms)),
    attempt_ms = GREATEST(attempt_ms, VALUES(attempt_ms))`,
	sqlite: new(Fact).columns().inserts("consumer_facts") + `
ON CONFLICT DO UPDATE SET
    status_code = CASE WHEN excluded.attempt_ms >= attempt_ms THEN excluded.status_code ELSE status_code END,
    error = CASE WHEN excluded.attempt_ms >= attempt_ms THEN excluded.error ELSE error END,
    success_ms = MAX(success_ms, excluded.success_ms),
    claim_ms = MAX(claim_ms, excluded.claim_ms),
    attempt_ms = MAX(attempt_ms, excluded.attempt_ms)`,
}

// KeepFacts stores facts of up to 500 consumers, in the order of their numbers, in one statement. What is
// older than the stored one changes nothing, so it may be repeated.
func (s *Store) KeepFacts(ctx context.Context, facts []Fact) error {
	if len(facts) == 0 {
		return nil
	}
	var args []any
	for i := range facts {
		f := &facts[i]
		args = append(args, f.ConsumerNo, f.AttemptMs, f.SuccessMs, f.StatusCode, []byte(cutTo(f.Error, maxFactError)),
			f.ClaimMs)
	}
	return repeat(ctx, "keep facts of consumers", func(ctx context.Context) error {
		return insertRows(ctx, s.db, s.dialect.sql(insertFacts), args)
	})
}

// Circumstances are what the store knows of a consumer besides its jobs, of one moment.
type Circumstances struct {
	Fact
	Version       int64 // of the consumer
	State         ConsumerState
	ChannelPaused bool
	GroupPaused   bool     // that of the channel
	Settled       ident.ID // the jobs of all messages up to it are over or have a row
	Hold          Hold     // the last one, which may be over; zero: none
	Pace          Pace     // of an adaptive consumer; zero: none is stored
}

var selectFacts = `
SELECT` + new(Fact).columns().names() + `
FROM consumer_facts
WHERE consumer_no IN (?...)`

// Facts returns what is stored of consumers, in the order of their numbers. One that never had an attempt is
// missing.
func (s *Store) Facts(ctx context.Context, consumers []uint32) (out []Fact, err error) {
	for _, part := range chunks(consumers, maxInList) {
		args := make([]any, len(part))
		for i, no := range part {
			args[i] = no
		}
		some, err := readAll[Fact](ctx, s, "read facts of consumers", list(selectFacts, len(part)), args...)
		if err != nil {
			return nil, err
		}
		out = append(out, some...)
	}
	return out, nil
}

// An Unfinished is a job of a consumer that may be open.
type Unfinished struct {
	ID   ident.ID
	Over bool // it was read, and is over
	// Of a job with a row in open_jobs: when it is due, and when it failed or was given back.
	NextMs, ChangedMs int64
	Returned          bool // its last change was that a worker gave it back
}

func (u *Unfinished) columns() columns {
	return columns{
		{"id", asID{&u.ID}},
		{"finished", &u.Over},
		{"next_ms", &u.NextMs},
		{"changed_ms", &u.ChangedMs},
		{"returned", &u.Returned},
	}
}

// finishedIn is true for a job of a row that has an outcome, or whose message is gone: a lease that ends late
// leaves such a row until the next purge.
const finishedIn = `CASE
            WHEN NOT EXISTS (SELECT 1 FROM messages m WHERE m.channel_no = ? AND m.id = j.id) THEN 1
            WHEN EXISTS (SELECT 1 FROM deliveries v WHERE v.consumer_no = ? AND v.message_id = j.id) THEN 1
            WHEN EXISTS (SELECT 1 FROM dead_jobs d WHERE d.consumer_no = ? AND d.message_id = j.id) THEN 1
            ELSE 0
        END AS finished`

// The inner queries bound what is read, whatever became of the jobs. A give-back and a failure differ in
// the attempt that was stored with them.
var selectUnfinished = `
SELECT` + new(Unfinished).columns().names() + `
FROM (
    SELECT
        j.id,
        ` + finishedIn + `,
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
          AND ` + concernsIn("") + `
        ORDER BY id
        LIMIT ?
    ) j
) u`

// UnfinishedJobs returns the jobs of a consumer that are not over, in one statement: of up to limit rows
// of open_jobs, and of up to limit messages after the settled watermark. all is false where there may be
// more of either.
func (s *Store) UnfinishedJobs(ctx context.Context, k Consumer, settled ident.ID, limit int) (open []Unfinished,
	all bool, err error) {
	args := []any{k.ChannelNo, k.No, k.No, k.No, k.No, limit, k.No, k.No, k.No}
	args = append(k.appendConcerns(append(args, k.ChannelNo, settled[:])), limit)
	read, err := readAll[Unfinished](ctx, s, "read the open jobs of a consumer", selectUnfinished, args...)
	if err != nil {
		return nil, false, err
	}
	rows := 0
	for _, u := range read {
		if u.ChangedMs > 0 {
			rows++
		}
		if !u.Over {
			open = append(open, u)
		}
	}
	return open, rows < limit && len(read)-rows < limit, nil
}
