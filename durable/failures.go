package durable

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
)

var (
	selectFailures = locking(`
SELECT times
FROM failures
WHERE consumer_no = ?`, updateLock)

	insertFailures = keepFirst(`
INSERT INTO failures (
    consumer_no,
    times
)
VALUES (?, x'')`, "consumer_no")
)

const (
	updateFailures = `
UPDATE failures
SET times = ?
WHERE consumer_no = ?`

	selectFailuresSince = `
SELECT failures_ms
FROM consumers
WHERE no = ?`
)

// countFailures adds new failures to the rings of their consumers: the times of the last
// After + 1 failures, in one row per consumer. Where a ring fits into the window, the
// consumer becomes dead in the same transaction. A success changes no ring. The rings are
// locked in the order of the consumers; a failure of a replay counts for its consumer.
func (s *Store) countFailures(ctx context.Context, tx *sql.Tx, failures []Outcome) error {
	failures = slices.DeleteFunc(slices.Clone(failures), func(o Outcome) bool { return o.Tombstone == nil })
	ring := func(o Outcome) uint32 { return cmp.Or(o.Tombstone.ConsumerNo, o.ConsumerNo) }
	slices.SortStableFunc(failures, func(a, b Outcome) int { return cmp.Compare(ring(a), ring(b)) })
	for start := 0; start < len(failures); {
		end := start + 1
		for end < len(failures) && ring(failures[end]) == ring(failures[start]) {
			end++
		}
		if err := s.countFailuresOf(ctx, tx, failures[start:end]); err != nil {
			return err
		}
		start = end
	}
	return nil
}

func (s *Store) countFailuresOf(ctx context.Context, tx *sql.Tx, failures []Outcome) error {
	last := failures[len(failures)-1]
	no := cmp.Or(last.Tombstone.ConsumerNo, last.ConsumerNo)
	// The row is created first: two transactions that both found none would overwrite each other.
	if err := exec(ctx, tx, s.dialect.sql(insertFailures), no); err != nil {
		return err
	}
	var ring []byte
	if err := tx.QueryRowContext(ctx, s.dialect.sql(selectFailures), no).Scan(&ring); err != nil {
		return err
	}
	var since int64
	if err := tx.QueryRowContext(ctx, selectFailuresSince, no).Scan(&since); err != nil {
		if errors.Is(err, sql.ErrNoRows) {
			return nil
		}
		return err
	}
	times := timesOf(ring)
	for _, o := range failures {
		times = append(times, o.AtMs)
	}
	slices.Sort(times)
	rule := last.Tombstone
	oldest := max(since, times[len(times)-1]-rule.Window.Milliseconds())
	times = slices.DeleteFunc(times, func(ms int64) bool { return ms < oldest })
	times = times[max(len(times)-rule.After-1, 0):]
	if err := exec(ctx, tx, updateFailures, ringOf(times), no); err != nil {
		return err
	}
	if len(times) <= rule.After {
		return nil
	}
	return s.trip(ctx, tx, last)
}

// trip makes an active consumer dead because of its last failure.
func (s *Store) trip(ctx context.Context, tx *sql.Tx, last Outcome) error {
	no := cmp.Or(last.Tombstone.ConsumerNo, last.ConsumerNo)
	k, err := selectOne[Consumer](ctx, tx, selectConsumerByNo, no)
	if err != nil || k.State != StateActive {
		return err
	}
	c, err := s.newVersion(ctx, tx)
	if err != nil {
		return err
	}
	// Another transaction may have changed the state before the version was locked.
	if k, err = selectOne[Consumer](ctx, tx, selectConsumerByNo, no); err != nil || k.State != StateActive {
		return err
	}
	rule := last.Tombstone
	reason := fmt.Sprintf("%d failures within %s; the last one was attempt %d of job %s: %s",
		rule.After+1, rule.Window, last.Attempts, last.ID.Job(k.Position), last.Error)
	if err := s.setState(ctx, c, &k, StateChange{To: StateDead, Reason: reason}); err != nil {
		return err
	}
	rule.Tripped = true
	return nil
}

func timesOf(ring []byte) []int64 {
	times := make([]int64, 0, len(ring)/8+1)
	for ; len(ring) >= 8; ring = ring[8:] {
		times = append(times, int64(binary.BigEndian.Uint64(ring)))
	}
	return times
}

func ringOf(times []int64) []byte {
	ring := make([]byte, 0, 8*len(times))
	for _, ms := range times {
		ring = binary.BigEndian.AppendUint64(ring, uint64(ms))
	}
	return ring
}
