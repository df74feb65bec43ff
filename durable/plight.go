package durable

import (
	"context"
	"database/sql"
	"errors"

	"github.com/penstock-broker/penstock/internal/model/ident"
)

// A Plight is what the store knows of one job, or of why a consumer has none of a message: the message,
// the state of the job, and the circumstances of the consumer, of one moment.
type Plight struct {
	Circumstances
	Head       Head
	ProducerNo uint32 // of the message
	Job        JobState
	// Returned says that the last change of an open job was that a worker gave it back.
	Returned bool
	// RemovedMs is the time before which failed attempts of jobs of the channel were removed, Unix ms; 0: none were.
	// Of a job that is over, There are its attempts that are stored then, with its delivery.
	RemovedMs int64
	There     int
}

// RemovedAttempts is RemovedAttempts of the job.
func (p *Plight) RemovedAttempts() int64 {
	return RemovedAttempts(p.Head.ID, p.Job.Status.Over(), p.Job.Attempts, p.There, p.RemovedMs)
}

// circumstanced are the columns of Circumstances.
func (c *Circumstances) circumstanced() columns {
	return columns{
		{"c.version", &c.Version},
		{"c.state", &c.State},
		{"(ch.paused & 1) <> 0", &c.ChannelPaused},
		{"(ch.paused & 2) <> 0", &c.GroupPaused},
		{"COALESCE(f.attempt_ms, 0)", &c.AttemptMs},
		{"COALESCE(f.success_ms, 0)", &c.SuccessMs},
		{"COALESCE(f.status_code, 0)", &c.Fact.StatusCode},
		{"f.error", asBytes{&c.Fact.Error}},
		{"COALESCE(f.claim_ms, 0)", &c.ClaimMs},
		{"COALESCE(h.since_ms, 0)", &c.Hold.SinceMs},
		{"COALESCE(h.until_ms, 0)", &c.Hold.UntilMs},
		{"h.held_by", asBytes{&c.Hold.By}},
		{"COALESCE(p.mode, 0)", &c.Pace.Mode},
		{"COALESCE(p.rate, 0)", &c.Pace.PerSecond},
		{"COALESCE(p.since_ms, 0)", &c.Pace.SinceMs},
		{"w.message_id", asOptionalID{&c.Settled}},
		{"c.no", &c.ConsumerNo},
	}
}

// attemptsThere counts the attempts of a job that is over, of a channel that has removed some. A delivery is one more,
// unless what the consumer said of it is stored as an attempt.
const attemptsThere = "CASE WHEN kc.attempts_ms > 0 AND COALESCE(v.message_id, d.message_id) IS NOT NULL" +
	" THEN (SELECT COUNT(*) FROM attempts a WHERE a.consumer_no = c.no AND a.message_id = m.id)" +
	" + CASE WHEN v.message_id IS NULL OR EXISTS (SELECT 1 FROM attempts a WHERE a.consumer_no = c.no" +
	" AND a.message_id = m.id AND a.at_ms = v.at_ms AND a.attempt = v.attempts" +
	" AND a.status_code BETWEEN 200 AND 299) THEN 0 ELSE 1 END ELSE 0 END"

// joinKept joins what the channel of a consumer c has removed.
const joinKept = `
LEFT JOIN kept_channels kc
  ON kc.channel_no = c.channel_no`

const joinCircumstances = `
JOIN channels ch
  ON ch.no = c.channel_no
LEFT JOIN consumer_facts f
  ON f.consumer_no = c.no
LEFT JOIN holds h
  ON h.consumer_no = c.no
LEFT JOIN paces p
  ON p.consumer_no = c.no
LEFT JOIN marks w
  ON w.consumer_no = c.no`

// columns are those of selectPlights.
func (p *Plight) columns() columns {
	j := &p.Job
	return append(p.circumstanced(), columns{
		{"m.id", asID{&p.Head.ID}},
		{"m.audience", &p.Head.Audience},
		{"m.priority", &p.Head.Priority},
		{"m.addressed", asPositions{&p.Head.Addressed}},
		{"m.left_out", asPositions{&p.Head.LeftOut}},
		{"m.producer_no", &p.ProducerNo},
		{endedIn, &j.Status},
		{"COALESCE(v.attempts, d.attempts, o.attempts, 0)", &j.Attempts},
		{"COALESCE(v.at_ms, d.died_ms, o.changed_ms, 0)", &j.ChangedMs},
		{"COALESCE(o.next_ms, 0)", &j.NextMs},
		{"COALESCE(v.status_code, d.status_code, o.status_code, 0)", &j.StatusCode},
		{"COALESCE(d.reason, o.error)", asBytes{&j.Error}},
		{"COALESCE(d.reason_code, 0)", &j.Reason},
		{"COALESCE(o.given_back, 0)", &j.GivenBack},
		{"CASE WHEN o.given_back > 0 AND EXISTS (SELECT 1 FROM attempts a WHERE a.consumer_no = c.no" +
			" AND a.message_id = m.id AND a.at_ms = o.changed_ms AND a.phase = 4) THEN 1 ELSE 0 END", &p.Returned},
		{"COALESCE(kc.attempts_ms, 0)", &p.RemovedMs},
		{attemptsThere, &p.There},
	}...)
}

var (
	selectCircumstances = `
SELECT` + new(Circumstances).circumstanced().names() + `
FROM consumers c` + joinCircumstances + `
WHERE c.no = ?`

	fromPlights = `
SELECT` + new(Plight).columns().names() + `
FROM messages m
JOIN consumers c
  ON c.channel_no = m.channel_no` + joinCircumstances + joinKept + joinEnds("c.no") + `
WHERE m.channel_no = ?
  AND m.id = ?`

	selectPlight = fromPlights + `
  AND c.no = ?`

	selectPlights = fromPlights + `
ORDER BY c.position
LIMIT ?`
)

// CircumstancesOf returns the circumstances of a consumer, in one statement. ErrNotFound: there is no
// such consumer.
func (s *Store) CircumstancesOf(ctx context.Context, consumerNo uint32) (c Circumstances, err error) {
	err = repeat(ctx, "read the circumstances of a consumer", func(ctx context.Context) error {
		c = Circumstances{}
		err := s.reads.QueryRowContext(ctx, selectCircumstances, consumerNo).Scan(c.circumstanced().fields()...)
		if errors.Is(err, sql.ErrNoRows) {
			return ErrNotFound
		}
		return err
	})
	return c.numbered(), err
}

// numbered gives the parts the number of the consumer.
func (c Circumstances) numbered() Circumstances {
	c.Hold.ConsumerNo, c.Pace.ConsumerNo = c.ConsumerNo, c.ConsumerNo
	return c
}

// PlightOf returns the plight of the job of one consumer, in one statement. ErrNotFound: the channel has no
// such message or consumer.
func (s *Store) PlightOf(ctx context.Context, channelNo uint32, id ident.ID, consumerNo uint32) (Plight, error) {
	found, err := readAll[Plight](ctx, s, "read the plight of a job", selectPlight, channelNo, id[:], consumerNo)
	if err == nil && len(found) == 0 {
		err = ErrNotFound
	}
	if err != nil {
		return Plight{}, err
	}
	found[0].Circumstances = found[0].numbered()
	return found[0], nil
}

// Plights returns the plights of the jobs of a message, one for each of the first limit consumers of its
// channel, in the order of these. It is empty where the channel has no such message, or no consumer.
func (s *Store) Plights(ctx context.Context, channelNo uint32, id ident.ID, limit int) ([]Plight, error) {
	found, err := readAll[Plight](ctx, s, "read the plights of jobs", selectPlights, channelNo, id[:], limit)
	for i := range found {
		found[i].Circumstances = found[i].numbered()
	}
	return found, err
}

// chainLooked bounds how many messages of an ordering key Blocker looks back.
const chainLooked = 100

// The recursion follows the chain of the key by its primary key. Of the jobs that are not over the one
// that was stored first blocks the others.
var selectBlocker = `
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
SELECT` + new(Plight).columns().names() + `
FROM chain
JOIN messages m
  ON m.channel_no = ?
  AND m.id = chain.id
JOIN consumers c
  ON c.no = ?` + joinCircumstances + joinKept + joinEnds("c.no") + `
WHERE v.message_id IS NULL
  AND (d.message_id IS NULL OR (? = 1 AND d.disposal <> 2))
  AND ` + concernsIn("m.") + `
ORDER BY chain.depth DESC
LIMIT 1`

// Blocker returns the job that blocks a job of an ordered consumer: of the last chainLooked messages
// before it in its ordering key the oldest whose job is not over. A dead letter blocks if dead says so.
// ErrNotFound: none does.
func (s *Store) Blocker(ctx context.Context, k Consumer, id ident.ID, dead bool) (Plight, error) {
	blocks := 0
	if dead {
		blocks = 1
	}
	args := k.appendConcerns([]any{k.ChannelNo, id[:], k.ChannelNo, chainLooked, k.ChannelNo, k.No, blocks})
	found, err := readAll[Plight](ctx, s, "read what blocks a job", selectBlocker, args...)
	if err == nil && len(found) == 0 {
		err = ErrNotFound
	}
	if err != nil {
		return Plight{}, err
	}
	return found[0], nil
}
