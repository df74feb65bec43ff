package redisq

import (
	"context"
	"fmt"
	"time"
)

// A Rate is the most leases in any window of that length. The zero value is no limit.
type Rate struct {
	N   int
	Per time.Duration
}

// Limits bound the leases of one consumer, of all brokers together. The zero value is no
// limit. Every call for a consumer passes them. Redis counts the leases; see lua/grant.lua.
type Limits struct {
	// Rate is the limit of the consumer. Pace is a second one, which holds besides Rate
	// while the consumer is to be spared.
	Rate, Pace Rate
	// Own is a third one, which a replay may have. It counts the leases of the replay alone.
	Own Rate
	// Slack is the longest time from the claim to the use of a lease. Windows are longer by
	// Slack, so the uses keep the rates as well. A lease that is used later needs Regrant.
	Slack       time.Duration
	Concurrency int // most leases at the same time; 0: no limit
	// RetryShare is the percentage of the leases that jobs with attempts may get while first
	// attempts wait; 0: DefaultRetryShare. At 100 priority and time alone decide.
	RetryShare int
	// Slots are the places of the caller for leases, of which retries have Retrying. The share
	// counts for these too. Only Claim uses them. 0: the caller has no bound.
	Slots, Retrying int
	// Worker is who gets the leases, as Lease has it. Only Claim uses it.
	Worker string
}

// DefaultRetryShare is the share of retries in percent.
const DefaultRetryShare = 25

// plain reports whether nothing differs from what scripts assume.
func (l *Limits) plain() bool {
	return !l.Rated() && l.Concurrency <= 0 && (l.RetryShare <= 0 || l.RetryShare == DefaultRetryShare)
}

// Rated reports whether there is a rate.
func (l *Limits) Rated() bool { return l.Rate.N > 0 || l.Pace.N > 0 || l.Own.N > 0 }

// with adds the argument of the limits, if there are any, to those of a script. It is
// longer than a message ID, and no other last argument begins like it.
func (l *Limits) with(args []any) []any {
	if l.plain() {
		return args
	}
	if !l.Rated() && l.Concurrency <= 0 && l.RetryShare == 100 { // every claim of a worker
		return append(args, "limits 0 0 0 0 0 100")
	}
	window := func(r Rate) int64 {
		if r.N <= 0 {
			return 0
		}
		return millis(r.Per + l.Slack)
	}
	share := l.RetryShare
	if share <= 0 {
		share = DefaultRetryShare
	}
	text := fmt.Sprintf("limits %d %d %d %d %d %d", max(l.Rate.N, 0), window(l.Rate), max(l.Pace.N, 0), window(l.Pace),
		max(l.Concurrency, 0), share)
	if l.Own.N > 0 {
		text += fmt.Sprintf(" %d %d", l.Own.N, window(l.Own))
	}
	return append(args, text)
}

// Regrant moves a lease that is used later than Slack after its claim to the present in the count
// of the rates. wait is 0 if the rates allow that, and then out is the lease to go on with.
// Otherwise no rate counts the lease any longer; it must be released, and a new claim may
// succeed after wait. A lease without Granted is counted once more.
func (q *Queue) Regrant(ctx context.Context, consumer uint32, l Lease, limits Limits) (out Lease, wait time.Duration,
	err error) {
	out = l
	if !limits.Rated() {
		return out, 0, nil
	}
	reply, err := q.run(ctx, consumer, regrantScript, limits.with([]any{l.Granted})...)
	if err != nil {
		return out, 0, err
	}
	r := reader{items: reply}
	out.Granted = ""
	if r.int() == 1 {
		out.Granted = r.text()
	} else {
		wait = max(r.millis(), time.Millisecond)
	}
	return out, wait, r.err
}

// Hold grants no leases of the consumer for that long, except by ClaimEach. A longer hold stays; 0 ends every hold. A
// lost Redis forgets it.
func (q *Queue) Hold(ctx context.Context, consumer uint32, wait time.Duration) error {
	_, err := q.run(ctx, consumer, holdScript, millis(wait))
	return err
}
