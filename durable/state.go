package durable

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"slices"

	"github.com/penstock-broker/penstock/internal/model/auditlog"
)

const (
	updateConsumerState = `
UPDATE consumers
SET
    state = ?,
    state_reason = ?,
    state_ms = ?,
    probe_ms = 0,
    version = ?
WHERE no = ?`

	forgetFailures = `
UPDATE consumers
SET failures_ms = ?
WHERE no = ?`

	takeProbe = `
UPDATE consumers
SET probe_ms = ?
WHERE no = ?
  AND state = ?
  AND probe_ms < ?`

	returnProbe = `
UPDATE consumers
SET probe_ms = 0
WHERE no = ?
  AND probe_ms = ?`

	updateChannelPaused = `
UPDATE channels
SET
    paused = ?,
    version = ?
WHERE no = ?`
)

// A StateChange moves a consumer into another state if it is in one of the states From.
type StateChange struct {
	ConsumerNo uint32
	From       []ConsumerState
	// SinceMs is the required StateMs of the consumer, 0 for any. Every change of the state
	// has another time.
	SinceMs int64
	// URL is the required callback URL of the consumer, "" for any.
	URL    string
	To     ConsumerState
	Reason string // cut to 512 bytes
	// Forget leaves all failures up to now out of the count of CountFailures.
	Forget bool
	// Release also ends the hold of the consumer, whatever its state is: it is the word of a person.
	Release bool
}

// SetConsumerState makes a change in one transaction and returns the consumer after it. changed
// is true for exactly one of several brokers that make the same change. ChangedAt of the
// consumer stays. ErrNotFound: there is no such consumer.
func (s *Store) SetConsumerState(ctx context.Context, p StateChange) (out Consumer, changed bool, err error) {
	err = s.put(ctx, "change the state of a consumer", func(ctx context.Context, c change) error {
		changed = false
		if out, err = selectOne[Consumer](ctx, c.tx, selectConsumerByNo, p.ConsumerNo); err != nil {
			if errors.Is(err, sql.ErrNoRows) {
				return ErrNotFound
			}
			return err
		}
		if out.Deleted() {
			return ErrNotFound
		}
		if !slices.Contains(p.From, out.State) || p.SinceMs != 0 && p.SinceMs != out.StateMs || p.URL != "" &&
			p.URL != out.CallbackURL {
			return errUnchanged
		}
		changed = true
		return s.setState(ctx, c, &out, p)
	})
	if err == nil && !changed && p.Release { // the transaction was rolled back
		err = s.EndHolds(ctx, []uint32{p.ConsumerNo})
	}
	if err != nil {
		return Consumer{}, false, err
	}
	return out, changed, nil
}

// setState writes the new state of a consumer, and the alert of the transition with it.
func (s *Store) setState(ctx context.Context, c change, k *Consumer, p StateChange) error {
	from, was := k.State, *k
	k.State, k.StateReason, k.Version = p.To, cutReason(p.Reason), c.version
	k.StateMs = max(c.nowMs, k.StateMs+1)
	auditlog.Note(ctx, was, *k)
	err := exec(ctx, c.tx, updateConsumerState, k.State, []byte(k.StateReason), k.StateMs, c.version, k.No)
	if err == nil && p.Forget {
		err = exec(ctx, c.tx, forgetFailures, c.nowMs, k.No)
	}
	if err == nil && p.Release {
		err = exec(ctx, c.tx, deleteHold, k.No)
	}
	event, reason := eventOf(from, p.To)
	if err != nil || event == 0 {
		return err
	}
	return s.alertOf(ctx, c.tx, k, Alert{Event: event, AtMs: k.StateMs, Reason: cmp.Or(k.StateReason, reason)})
}

// TakeProbe gives one caller the right to send a job to a consumer in StateProbing, until
// untilMs by the store's clock. It returns false while another caller has the right.
func (s *Store) TakeProbe(ctx context.Context, consumerNo uint32, untilMs int64) (taken bool, err error) {
	err = repeat(ctx, "take the probe of a consumer", func(ctx context.Context) error {
		now, err := s.now(ctx, s.db)
		if err != nil {
			return err
		}
		res, err := s.db.ExecContext(ctx, takeProbe, untilMs, consumerNo, StateProbing, now)
		if err != nil {
			return err
		}
		n, err := res.RowsAffected()
		taken = n == 1
		return err
	})
	return taken, err
}

// ReturnProbe gives back the right that was taken until untilMs, because nothing was sent.
func (s *Store) ReturnProbe(ctx context.Context, consumerNo uint32, untilMs int64) error {
	return repeat(ctx, "return the probe of a consumer", func(ctx context.Context) error {
		return exec(ctx, s.db, returnProbe, consumerNo, untilMs)
	})
}

// SetChannelPaused pauses or resumes the intake of a channel. After it has returned a paused
// channel, no message is inserted into it: the guard of the insert sees the pause. ErrNotFound:
// there is no such channel.
func (s *Store) SetChannelPaused(ctx context.Context, id string, paused bool) (out Channel, changed bool, err error) {
	err = s.put(ctx, "pause a channel", func(ctx context.Context, c change) error {
		changed = false
		if out, err = selectOne[Channel](ctx, c.tx, selectChannel, []byte(id)); err != nil {
			if errors.Is(err, sql.ErrNoRows) {
				return ErrNotFound
			}
			return err
		}
		if out.Paused == paused {
			return errUnchanged
		}
		was := out
		out.Paused, out.Version, changed = paused, c.version, true
		auditlog.Note(ctx, was, out)
		if err := exec(ctx, c.tx, updateRhythm, c.nowMs, out.No); err != nil {
			return err
		}
		return exec(ctx, c.tx, updateChannelPaused, out.pauses(), c.version, out.No)
	})
	if err != nil {
		return Channel{}, false, err
	}
	return out, changed, nil
}
