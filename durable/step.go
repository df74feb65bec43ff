package durable

import (
	"cmp"
	"context"
	"database/sql"
	"slices"

	"github.com/penstock-broker/penstock/internal/model/ident"
)

// A StepKind is what happened in a step.
type StepKind uint8

// The kinds of steps. Of two steps at the same time the one with the lower kind came first.
const (
	StepAttempt    StepKind = iota + 1 // an attempt failed
	StepLeaseEnded                     // a lease ended without an outcome
	StepDelivered
	StepDead
	StepRedriven          // a dead letter was opened again
	StepReplayed          // the job of a replay is over: delivered, or dead if it has a reason
	StepResponseReceived  // the response of the consumer is stored
	StepResponseDelivered // the producer has it
	StepFailed            // the exchange ended without a response
	StepGivenBack         // a pull worker gave the job back
)

var stepNames = [...]string{"", "ATTEMPT", "LEASE_ENDED", "DELIVERED", "DEAD", "REDRIVEN", "REPLAYED",
	"RESPONSE_RECEIVED", "RESPONSE_DELIVERED", "FAILED", "GIVEN_BACK"}

// String is the name of the kind in a timeline.
func (k StepKind) String() string {
	return stepNames[min(k, StepGivenBack)]
}

// A Step is one thing that is stored about what became of a job.
type Step struct {
	ConsumerNo uint32
	Kind       StepKind
	ReplayNo   uint32 // 0: the step is not of a replay
	AtMs       int64  // Unix ms
	Attempt    int    // 0: the step is about no attempt
	StatusCode int    // HTTP status of the consumer, 0 when there was none
	DurationMs *int64
	Node       int // 1 + number of the broker, 0: not known
	Phase      Phase
	Reason     Reason
	How        Reopening // of StepRedriven
	Text       string    // the failure
	Answer     []byte    // first KiB of the consumer's answer
	Worker     string    // as of an Outcome
}

// A StepPage is a page of the steps of a message: those of some consumers, in the order of the
// numbers of the consumers.
type StepPage struct {
	ID        ident.ID // of the message
	ChannelNo uint32   // of the message
	Consumers []uint32 // ascending, not empty
	FromMs    int64    // the page has the steps of the first consumer from that time on
	Limit     int      // steps of each kind, 1 or more
}

// args are the arguments of the queries. They begin with the channel where channel is true.
func (p *StepPage) args(channel bool) []any {
	args := make([]any, 0, len(p.Consumers)+5)
	if channel {
		args = append(args, p.ChannelNo)
	}
	for _, no := range p.Consumers {
		args = append(args, no)
	}
	return append(args, p.ID[:], p.Consumers[0], p.FromMs, p.Limit+1)
}

// Steps returns a page of steps, sorted by consumer and time. If more is true, the next page
// begins with the steps of the consumer next.ConsumerNo at the time next.AtMs.
func (s *Store) Steps(ctx context.Context, p StepPage) (steps []Step, next Step, more bool, err error) {
	for _, source := range stepSources {
		var found []Step
		err := repeat(ctx, "read steps", func(ctx context.Context) error {
			found = nil
			return each(ctx, s.reads, list(source.query, len(p.Consumers)), p.args(source.channel), func(r *sql.Rows) error {
				step, err := scanStep(r)
				found = append(found, step)
				return err
			})
		})
		if err != nil {
			return nil, Step{}, false, err
		}
		if len(found) > p.Limit {
			last := found[p.Limit]
			if last.ConsumerNo == p.Consumers[0] && last.AtMs == p.FromMs { // all of them at one time: go on behind it
				last.AtMs++
			}
			if !more || last.compare(next) < 0 {
				next, more = last, true
			}
		}
		steps = append(steps, found...)
	}
	if more { // what comes later is not complete
		steps = slices.DeleteFunc(steps, func(step Step) bool { return step.compare(next) >= 0 })
	}
	slices.SortStableFunc(steps, func(a, b Step) int {
		return cmp.Or(a.compare(b), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Attempt, b.Attempt))
	})
	return steps, next, more, nil
}

// compare orders steps by consumer and time.
func (s Step) compare(other Step) int {
	return cmp.Or(cmp.Compare(s.ConsumerNo, other.ConsumerNo), cmp.Compare(s.AtMs, other.AtMs))
}

// NotedBy reports whether other is the attempt that s, a delivery, ended: a delivery with a note has
// an attempt of its own.
func (s Step) NotedBy(other Step) bool {
	return other.Kind == StepAttempt && other.ReplayNo == s.ReplayNo && other.AtMs == s.AtMs && other.Attempt == s.Attempt
}

func scanStep(r *sql.Rows) (Step, error) {
	var s Step
	var took, node sql.NullInt64
	var text []byte
	err := r.Scan(&s.ConsumerNo, &s.Kind, &s.ReplayNo, &s.AtMs, &s.Attempt, &s.StatusCode, &took, &node, &s.Phase,
		&s.Reason, &s.How, &text, &s.Answer, asBytes{&s.Worker})
	if took.Valid {
		s.DurationMs = &took.Int64
	}
	if node.Valid {
		s.Node = int(node.Int64) + 1
	}
	s.Text = string(text)
	return s, err
}

// A LeaseEnd is a lease that ended without an outcome, of a job that is tried again.
type LeaseEnd struct {
	ID       ident.ID // of the message
	Priority int
	Attempt  int
	Worker   string // as of an Outcome
}

// RecordLeaseEnds adds lease ends of a consumer to the attempts of their jobs and charges them,
// where no outcome of that attempt is stored: then only its acknowledgement was lost.
//
// A job that ends between the look at its state and the write has a row in open_jobs, which its outcome
// outranks. What comes after the write removes that row; a crash before it leaves the row without effect.
func (s *Store) RecordLeaseEnds(ctx context.Context, consumerNo uint32, ends []LeaseEnd, atMs int64) error {
	ids := make([]ident.ID, len(ends))
	for i, e := range ends {
		ids[i] = e.ID
	}
	states, err := s.JobStates(ctx, consumerNo, ids)
	if err != nil {
		return err
	}
	var rows []Outcome
	for _, e := range ends {
		if j := states[e.ID]; j.Status.Over() || j.Attempts >= e.Attempt {
			continue
		}
		rows = append(rows, Outcome{Kind: OutcomeRetry, ConsumerNo: consumerNo, ID: e.ID, Priority: e.Priority,
			Attempts: e.Attempt, AtMs: atMs,
			NextMs: atMs, Phase: PhaseLeaseEnded, Error: "the lease ended without an outcome", Worker: e.Worker})
	}
	if len(rows) == 0 {
		return nil
	}
	slices.SortFunc(rows, func(a, b Outcome) int { return a.ID.Compare(b.ID) })
	err = s.run(ctx, transaction{name: "record lease ends", harmless: true}, func(ctx context.Context, tx *sql.Tx) error {
		if err := s.recordAttempts(ctx, tx, rows); err != nil {
			return err
		}
		return s.upsertOpen(ctx, tx, rows, nil)
	})
	if err != nil {
		return err
	}
	return s.removeOutranked(ctx, consumerNo, rows)
}

// removeOutranked removes the rows in open_jobs of jobs that are over.
func (s *Store) removeOutranked(ctx context.Context, consumerNo uint32, rows []Outcome) error {
	for _, part := range chunks(rows, deletedAtOnce) {
		ids := make([]ident.ID, len(part))
		for i, o := range part {
			ids[i] = o.ID
		}
		err := repeat(ctx, "remove the rows of jobs that are over", func(ctx context.Context) error {
			return exec(ctx, s.db, list(deleteOutranked, len(ids)), inArgs(consumerNo, ids)...)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

const deleteOutranked = `
DELETE FROM open_jobs
WHERE consumer_no = ?
  AND message_id IN (?...)
  AND (
    EXISTS (SELECT 1 FROM deliveries d WHERE d.consumer_no = open_jobs.consumer_no AND d.message_id = open_jobs.message_id)
    OR EXISTS (SELECT 1 FROM dead_jobs x WHERE x.consumer_no = open_jobs.consumer_no AND x.message_id = open_jobs.message_id)
  )`
