package durable

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/penstock-broker/penstock/internal/model/ident"
)

// insertMySQL stores a part, with all of its valid rows or none, and sets a result for every
// entry. It repeats the same statement with the same IDs until the outcome is known. A row
// that was stored over a broken connection is then found by its key and never stored twice.
func (s *Store) insertMySQL(ctx context.Context, node NodeLease, part []entry, errs []error) {
	uncertain := false // an earlier try may have committed
	for try := 0; len(part) > 0; try++ {
		v, err := s.sendInsert(ctx, node, part)
		if err == nil {
			spread(part, errs, nil)
			return
		}
		switch v {
		case unknown:
			uncertain = true
		case bad:
			// The statement fails because of its values, so no earlier try can have
			// committed either.
			if len(part) == 1 {
				errs[part[0].i] = fmt.Errorf("%w: %w", ErrRejected, withoutValues(err))
				return
			}
			s.insertMySQL(ctx, node, part[:len(part)/2], errs)
			s.insertMySQL(ctx, node, part[len(part)/2:], errs)
			return
		case exists:
			rest, e := s.resolve(ctx, s.db, part, errs)
			markFound(part, rest, errs)
			if e == nil && len(rest) < len(part) {
				part = rest
				continue
			}
			err = cmp.Or(e, err)
		case stale:
			rest, e := s.repeatStale(ctx, part, uncertain, errs)
			markFound(part, rest, errs)
			if e == nil {
				spread(rest, errs, ErrStale)
				return
			}
			uncertain, err = true, e
		case failed:
			if errors.Is(err, ErrNotReplicated) {
				spread(part, errs, err)
				return
			}
			if !uncertain {
				spread(part, errs, failedTo("insert", err))
				return
			}
		}
		if pause(ctx, try) == nil {
			continue
		}
		if uncertain {
			err = errors.Join(ErrOutcomeUnknown, err)
		}
		spread(part, errs, failedTo("insert", err))
		return
	}
}

// sendInsert sends a part once and returns the verdict on an error.
func (s *Store) sendInsert(ctx context.Context, node NodeLease, part []entry) (verdict, error) {
	conn, err := s.inserts.Conn(ctx)
	if err != nil {
		var answer *mysql.MySQLError
		if errors.As(err, &answer) || errors.Is(err, mysql.ErrInvalidConn) {
			return transient, err // too many connections, or a connection lost while dialling
		}
		return failed, err
	}
	defer func() { _ = conn.Close() }() // returns it to the pool, which drops a broken one
	w := newBuilder()
	defer w.release()
	insert := func() (verdict, error) { return s.sendPart(ctx, conn, w, node, part) }
	if part[0].Replicated { // then all are
		return s.insertReplicated(ctx, conn, insert)
	}
	return insert()
}

// sendPart sends a part on a connection, in one round trip. Where a message has rows besides its own,
// the packet is a whole transaction. The server ends it at the first statement that fails.
func (s *Store) sendPart(ctx context.Context, conn *sql.Conn, w *builder, node NodeLease,
	part []entry) (verdict, error) {
	if !slices.ContainsFunc(part, func(e entry) bool {
		return e.Key != "" || e.Priority > 0 || e.TTLMs > 0 ||
			e.Keyed()
	}) {
		return s.send(ctx, conn, w.messages(node, part)) // the common case: commits by itself
	}
	if s.clustered {
		return s.sendInTurn(ctx, conn, w, node, part)
	}
	w.join()
	w.b = w.begin("START TRANSACTION")
	_ = w.rows(node, part, func(string) error { return nil })
	w.b = w.begin("COMMIT")
	v, err := s.send(ctx, conn, w.text())
	if err != nil && !errors.Is(err, mysql.ErrPktTooLarge) {
		if _, e := conn.ExecContext(ctx, "ROLLBACK"); e != nil { // the server rolls back when the connection ends
			_ = conn.Raw(func(any) error { return driver.ErrBadConn })
		}
	}
	return v, err
}

// sendRows sends the statements of a part inside a transaction, one after the other.
func (s *Store) sendRows(ctx context.Context, tx *sql.Tx, w *builder, node NodeLease, part []entry) (v verdict,
	err error) {
	err = w.rows(node, part, func(text string) error {
		v, err = s.send(ctx, tx, text)
		return err
	})
	return v, err
}

// rows builds the statements of a part with all its rows, and calls add with each. The entries of
// each statement are sorted, so that concurrent inserts lock their rows in the same order. The
// order of the statements makes a repeat of a transaction that has committed find its first row
// taken: keys come first, so that a duplicate is found before payloads are sent, and expiries last,
// because only a repeat of the whole has these rows already.
func (w *builder) rows(node NodeLease, part []entry, add func(text string) error) (err error) {
	of := func(has func(e entry) bool) (some []entry) {
		for _, e := range part {
			if has(e) {
				some = append(some, e)
			}
		}
		return some
	}
	statement := func(n int, build func() string) {
		if err == nil && n > 0 {
			err = add(build())
		}
	}
	keyed := of(func(e entry) bool { return e.Key != "" && !e.Idempotent() })
	slices.SortFunc(keyed, byIdentity)
	statement(len(keyed), func() string { return w.keys(keyed) })
	used := of(func(e entry) bool { return e.Idempotent() })
	slices.SortFunc(used, byIdentity)
	statement(len(used), func() string { return w.uses(used) })
	prior := of(func(e entry) bool { return e.Priority > 0 })
	slices.SortFunc(prior, byLevel)
	statement(len(prior), func() string { return w.prioritised(prior) })
	chain := chained(part)
	statement(len(chain), func() string { return w.orderingKeys(chain) })
	statement(len(chain), func() string { return w.ordered(chain) })
	statement(len(part), func() string { return w.messages(node, part) })
	mortal := of(func(e entry) bool { return e.TTLMs > 0 })
	statement(len(mortal), func() string { return w.expiring(mortal) })
	return err
}

// byLevel orders entries as the index of prioritised messages is ordered.
func byLevel(a, b entry) int {
	return cmp.Or(cmp.Compare(a.ChannelNo, b.ChannelNo), cmp.Compare(b.Priority, a.Priority), a.ID.Compare(b.ID))
}

// byIdentity orders entries as the keys of messages are ordered.
func byIdentity(a, b entry) int {
	return cmp.Or(cmp.Compare(a.ChannelNo, b.ChannelNo), strings.Compare(a.Key, b.Key))
}

func (s *Store) send(ctx context.Context, q interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}, text string) (verdict, error) {
	if len(text) >= s.packet-1 {
		return bad, mysql.ErrPktTooLarge
	}
	_, err := q.ExecContext(ctx, text)
	if err == nil {
		return failed, nil
	}
	return classify(err), err
}

// resolve sets the results of entries that are stored and of entries whose key another
// message has. It returns the rest, in order.
func (s *Store) resolve(ctx context.Context, q querier, part []entry, errs []error) (rest []entry, err error) {
	for len(part) > 0 {
		n := 1
		for n < len(part) && part[n].ChannelNo == part[0].ChannelNo && n < 256 {
			n++
		}
		left, err := s.resolveChunk(ctx, q, part[:n], errs)
		if err != nil {
			return nil, err
		}
		rest = append(rest, left...)
		part = part[n:]
	}
	return rest, nil
}

// resolveChunk is resolve for entries of one channel.
func (s *Store) resolveChunk(ctx context.Context, q querier, part []entry, errs []error) (rest []entry, err error) {
	if part, err = s.resolveUses(ctx, q, part, errs); err != nil || len(part) == 0 {
		return nil, err
	}
	originals, err := s.originals(ctx, q, part)
	if err != nil {
		return nil, err
	}
	ids := make([]ident.ID, 0, len(part))
	for _, e := range part {
		ids = append(ids, e.ID)
		if h, known := originals[e.Key]; known && h.ID != e.ID && h.alike(e.Message) {
			ids = append(ids, h.ID)
		}
	}
	stored, err := s.stored(ctx, q, part[0].ChannelNo, ids)
	if err != nil {
		return nil, err
	}
	for _, e := range part {
		m, found := stored[e.ID]
		h, known := originals[e.Key]
		switch {
		case found && same(&m, e.Message):
			errs[e.i] = nil // an earlier commit of this message
		case known && h.ID != e.ID && !h.alike(e.Message):
			errs[e.i] = ErrConflict
		case known && h.ID != e.ID:
			if m, found = stored[h.ID]; !found { // removed since the originals were read
				rest = append(rest, e)
				continue
			}
			repeats, err := s.repeats(ctx, q, &m, e.Message)
			if err != nil {
				return nil, err
			}
			errs[e.i] = takenBy(h.ID, e, repeats)
		case found:
			errs[e.i] = ErrStale // another message has the ID; the caller takes a new one
		default:
			rest = append(rest, e)
		}
	}
	return rest, nil
}

// staleMargin is how long after MaxIDAge a statement that passed the guard may still write
// its first row.
const staleMargin = 250 * time.Millisecond

// repeatStale returns the entries that are not stored and, by the guard, never will be. With
// uncertain, a copy of the statement may still be on its way to the server. repeatStale then
// waits until the oldest ID is too old for the guard, so that such a copy must fail.
func (s *Store) repeatStale(ctx context.Context, part []entry, uncertain bool, errs []error) ([]entry, error) {
	rest, err := s.resolve(ctx, s.db, part, errs)
	if err != nil || len(rest) == 0 || !uncertain {
		return rest, err
	}
	oldest := rest[0].ID.Millis()
	for _, e := range rest {
		oldest = min(oldest, e.ID.Millis())
	}
	for { // the clock stands for a while where the server's goes back
		now, err := s.now(ctx, s.db)
		if err != nil {
			return nil, err
		}
		wait := time.Duration(oldest-now)*time.Millisecond + MaxIDAge + staleMargin
		if wait <= 0 {
			return s.resolve(ctx, s.db, rest, errs)
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(wait):
		}
	}
}
