package durable

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/penstock-broker/penstock/internal/ident"
)

// insertMySQL stores a part, with all of its valid rows or none, and sets a result for every
// entry. It repeats the same statement with the same IDs until the outcome is known. A row
// that was stored over a broken connection is then found by its key and never stored twice.
func (s *Store) insertMySQL(ctx context.Context, node NodeLease, part []entry, errs []error) {
	doubt := false // an earlier try may have committed
	for try := 0; len(part) > 0; try++ {
		v, err := s.sendInsert(ctx, node, part)
		if err == nil {
			spread(part, errs, nil)
			return
		}
		switch v {
		case unknown:
			doubt = true
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
			rest, e := s.settle(ctx, part, errs)
			if e == nil && len(rest) < len(part) {
				part = rest
				continue
			}
			err = cmp.Or(e, err)
		case stale:
			rest, e := s.repeatStale(ctx, part, doubt, errs)
			if e == nil {
				spread(rest, errs, ErrStale)
				return
			}
			doubt, err = true, e
		case failed:
			if !doubt {
				spread(part, errs, failedTo("insert", err))
				return
			}
		}
		if pause(ctx, try) == nil {
			continue
		}
		if doubt {
			err = errors.Join(ErrOutcomeUnknown, err)
		}
		spread(part, errs, failedTo("insert", err))
		return
	}
}

// sendInsert sends a part once and returns the verdict on an error.
func (s *Store) sendInsert(ctx context.Context, node NodeLease, part []entry) (verdict, error) {
	conn, err := s.db.Conn(ctx)
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

	if !slices.ContainsFunc(part, func(e entry) bool { return e.Key != "" || e.Priority > 0 }) {
		return s.send(ctx, conn, w.messages(node, part)) // the common case: commits by itself
	}

	keyed := slices.DeleteFunc(slices.Clone(part), func(e entry) bool { return e.Key == "" })
	prior := slices.DeleteFunc(slices.Clone(part), func(e entry) bool { return e.Priority == 0 })
	tx, err := conn.BeginTx(ctx, nil)
	if err != nil {
		return beforeCommit(judge(err)), err
	}
	slices.SortFunc(keyed, func(a, b entry) int {
		return cmp.Or(cmp.Compare(a.ChannelNo, b.ChannelNo), strings.Compare(a.Key, b.Key))
	})
	slices.SortFunc(prior, func(a, b entry) int {
		return cmp.Or(cmp.Compare(a.ChannelNo, b.ChannelNo), cmp.Compare(b.Priority, a.Priority), a.ID.Compare(b.ID))
	})
	v, err := failed, error(nil)
	if len(keyed) > 0 { // keys first, so that a duplicate is found before payloads are sent
		v, err = s.send(ctx, tx, w.keys(keyed))
	}
	if err == nil && len(prior) > 0 {
		v, err = s.send(ctx, tx, w.prioritised(prior))
	}
	if err == nil {
		v, err = s.send(ctx, tx, w.messages(node, part))
	}
	if err != nil {
		_ = tx.Rollback() // a lost connection rolls back by itself
		return beforeCommit(v), err
	}
	if err := tx.Commit(); err != nil {
		if errors.Is(err, sql.ErrTxDone) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
			return transient, err // database/sql has not sent the COMMIT
		}
		return judge(err), err
	}
	return failed, nil
}

// beforeCommit returns the verdict on a statement inside a transaction, where unknown means
// rolled back.
func beforeCommit(v verdict) verdict {
	if v == unknown {
		return transient
	}
	return v
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
	return judge(err), err
}

const (
	// The locking reads wait for a transaction that is about to commit such a row. A key and
	// its message are inserted and removed together.
	selectHolders = `
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
LOCK IN SHARE MODE`

	selectStored = `
SELECT
    id,
    producer_no,
    priority,
    msg_key,
    content_type,
    headers,
    payload
FROM messages
WHERE channel_no = ?
  AND id IN (?...)
LOCK IN SHARE MODE`
)

// settle sets the results of entries that are stored and of entries whose key another
// message has. It returns the rest, in order.
func (s *Store) settle(ctx context.Context, part []entry, errs []error) (rest []entry, err error) {
	for len(part) > 0 {
		n := 1
		for n < len(part) && part[n].ChannelNo == part[0].ChannelNo && n < 256 {
			n++
		}
		left, err := s.settleChunk(ctx, part[:n], errs)
		if err != nil {
			return nil, err
		}
		rest = append(rest, left...)
		part = part[n:]
	}
	return rest, nil
}

// settleChunk is settle for entries of one channel.
func (s *Store) settleChunk(ctx context.Context, part []entry, errs []error) (rest []entry, err error) {
	holders, err := s.holders(ctx, part)
	if err != nil {
		return nil, err
	}
	ids := make([]ident.ID, 0, len(part))
	for _, e := range part {
		ids = append(ids, e.ID)
		if h, held := holders[e.Key]; held && h.ID != e.ID && h.alike(e.Message) {
			ids = append(ids, h.ID)
		}
	}
	stored, err := s.stored(ctx, part[0].ChannelNo, ids)
	if err != nil {
		return nil, err
	}
	for _, e := range part {
		m, found := stored[e.ID]
		h, held := holders[e.Key]
		switch {
		case found && same(&m, e.Message):
			errs[e.i] = nil // an earlier commit of this message
		case held && h.ID != e.ID && !h.alike(e.Message):
			errs[e.i] = ErrConflict
		case held && h.ID != e.ID:
			if m, found = stored[h.ID]; !found { // removed since the holders were read
				rest = append(rest, e)
				continue
			}
			errs[e.i] = takenBy(h.ID, e, same(&m, e.Message))
		case found:
			errs[e.i] = ErrStale // another message has the ID; the caller takes a new one
		default:
			rest = append(rest, e)
		}
	}
	return rest, nil
}

// A holder is the message that has a key, with the size of its payload instead of the
// payload.
type holder struct {
	Message
	size int
}

// alike reports whether m and the message of the holder can differ only in the payload.
func (h *holder) alike(m *Message) bool { return h.size == len(m.Payload) && sameHead(&h.Message, m) }

func (s *Store) holders(ctx context.Context, part []entry) (map[string]*holder, error) {
	args := []any{part[0].ChannelNo}
	for _, e := range part {
		if e.Key != "" {
			args = append(args, []byte(e.Key))
		}
	}
	if len(args) == 1 {
		return nil, nil
	}
	out := map[string]*holder{}
	err := each(ctx, s.db, list(selectHolders, len(args)-1), args, func(r *sql.Rows) error {
		var h holder
		err := r.Scan(scanID{&h.ID}, &h.Key, &h.ProducerNo, &h.Priority, &h.ContentType, &h.Headers, &h.size)
		out[h.Key] = &h
		return err
	})
	return out, err
}

func (s *Store) stored(ctx context.Context, channelNo uint32, ids []ident.ID) (map[ident.ID]Message, error) {
	out := map[ident.ID]Message{}
	err := each(ctx, s.db, list(selectStored, len(ids)), inArgs(channelNo, ids), func(r *sql.Rows) error {
		var m Message
		err := r.Scan(scanID{&m.ID}, &m.ProducerNo, &m.Priority, &m.Key, &m.ContentType, &m.Headers, &m.Payload)
		out[m.ID] = m
		return err
	})
	return out, err
}

// staleMargin is how long after MaxIDAge a statement that passed the guard may still write
// its first row.
const staleMargin = 250 * time.Millisecond

// repeatStale returns the entries that are not stored and, by the guard, never will be. With
// doubt, a copy of the statement may still be on its way to the server. repeatStale then
// waits until the oldest ID is too old for the guard, so that such a copy must fail.
func (s *Store) repeatStale(ctx context.Context, part []entry, doubt bool, errs []error) ([]entry, error) {
	rest, err := s.settle(ctx, part, errs)
	if err != nil || len(rest) == 0 || !doubt {
		return rest, err
	}
	oldest := rest[0].ID.Millis()
	for _, e := range rest {
		oldest = min(oldest, e.ID.Millis())
	}
	now, err := s.now(ctx, s.db)
	if err != nil {
		return nil, err
	}
	t := time.NewTimer(time.Duration(oldest-now)*time.Millisecond + MaxIDAge + staleMargin)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-t.C:
		return s.settle(ctx, rest, errs)
	}
}
