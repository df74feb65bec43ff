package durable

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/binary"
)

// A store has another history after a backup was restored or a replica without the last writes was
// promoted: what a broker remembers of it, in memory or in Redis, is of a time that never was. The
// row of the clock tells. Its beat only grows, and so does the end of a lease that one broker
// writes: where one of them is lower than what was read or written before, the store went back. The
// first broker that notices gives the history a new name, so that all others notice too, also those
// that were stopped or cut off then.

// The upper half of a name counts the histories, so an older name is known as such.
func nextHistory(stored, seen int64) int64 {
	var random [4]byte
	_, _ = rand.Read(random[:]) // never fails
	return (max(stored>>32, seen>>32)+1)<<32 | int64(binary.BigEndian.Uint32(random[:]))
}

// wentBack reports whether the row is older than one that was seen, and has no new name yet.
func (c Clock) wentBack(seen Clock) bool {
	switch {
	case seen == Clock{}:
		return false
	case c.History == seen.History:
		return c.Beat < seen.Beat
	}
	return c.History>>32 <= seen.History>>32
}

// WentBack reports whether the clock is of an older store than one that was seen.
func (c Clock) WentBack(seen Clock) bool { return c.wentBack(seen) }

// Clock returns the row of the store's clock.
func (s *Store) Clock(ctx context.Context) (Clock, error) {
	r, err := s.readClock(ctx, s.reads)
	if err != nil {
		return Clock{}, failedTo("clock", err)
	}
	return r.Clock, nil
}

// CheckHistory compares the store with a Clock that was seen before, such as by a broker that was
// stopped since, and returns the present one. If the store went back, its history has a new name
// afterwards. In a history with another name than that of seen, what is remembered of the store is
// no longer true.
func (s *Store) CheckHistory(ctx context.Context, seen Clock) (now Clock, err error) {
	err = repeat(ctx, "check the history", func(ctx context.Context) error {
		now, err = s.raiseClock(ctx, seen, 0)
		return err
	})
	return now, err
}

// sameHistory returns ErrStale if the store went back since a Clock was seen.
func (s *Store) sameHistory(ctx context.Context, tx *sql.Tx, seen Clock) error {
	if seen == (Clock{}) {
		return nil
	}
	r, err := s.readClock(ctx, tx)
	if err == nil && (r.History != seen.History || r.wentBack(seen)) {
		return ErrStale
	}
	return err
}

// renameHistory names the history of a store that went back although its clock does not show it.
// Where another broker was faster, its name counts.
func (s *Store) renameHistory(ctx context.Context, seen Clock) (Clock, error) {
	for {
		r, err := s.readClock(ctx, s.reads)
		if err != nil || r.History != seen.History {
			return r.Clock, err
		}
		next, _ := r.raised(0)
		next.History = nextHistory(r.History, seen.History)
		if set, err := s.setClock(ctx, r, next); set || err != nil {
			return next, err
		}
		if ctx.Err() != nil {
			return Clock{}, ctx.Err()
		}
	}
}
