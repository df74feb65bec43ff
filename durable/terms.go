package durable

import (
	"bytes"
	"context"
	"crypto/sha256"
	"database/sql"
	"strconv"
)

// The terms of a message are what its producer asked of its delivery: whom it addresses, its time to
// live and its ordering key. They belong to its identity: a repeat with other terms would be
// acknowledged, and those that it names would never get it. Only what was asked counts. What the
// policies of consumers and channels make of it may change between a message and its repeat.

// terms returns a digest of the terms.
func (m *Message) terms() []byte {
	text := strconv.AppendInt(nil, m.TTLMs, 10)
	text = strconv.AppendInt(append(text, ' '), int64(len(m.Addressed)), 10)
	text = append(append(append(text, ' '), m.Addressed...), m.OrderingKey()...)
	sum := sha256.Sum256(text)
	return sum[:16]
}

// sameTerms reports whether two messages have the same terms.
func sameTerms(a, b *Message) bool { return a.Addressed == b.Addressed && sameLimits(a, b) }

// sameLimits is sameTerms without the addressees.
func sameLimits(a, b *Message) bool {
	return a.TTLMs == b.TTLMs && bytes.Equal(a.OrderingKey(), b.OrderingKey())
}

const selectPlaces = `
SELECT
    position,
    id
FROM consumers
WHERE channel_no = ?`

// agree is sameTerms for a stored message. A producer addresses consumers by their IDs, so the
// positions may differ where a consumer was deleted and another one has its ID: the statement that
// tells runs only then.
func (s *Store) agree(ctx context.Context, q querier, stored, m *Message) (bool, error) {
	if sameTerms(stored, m) || !sameLimits(stored, m) || stored.Addressed == "" || m.Addressed == "" {
		return sameTerms(stored, m), nil
	}
	ids := map[string][2]bool{}
	err := each(ctx, q, selectPlaces, []any{m.ChannelNo}, func(r *sql.Rows) error {
		var position int
		var id []byte
		err := r.Scan(&position, &id)
		has := ids[string(id)]
		has[0] = has[0] || stored.Addressed.Has(position)
		has[1] = has[1] || m.Addressed.Has(position)
		ids[string(id)] = has
		return err
	})
	for _, has := range ids {
		if has[0] != has[1] {
			return false, err
		}
	}
	return err == nil, err
}

// repeats reports whether m is a repeat of a stored message: the same content under the same terms.
func (s *Store) repeats(ctx context.Context, q querier, stored, m *Message) (bool, error) {
	if !same(stored, m) {
		return false, nil
	}
	return s.agree(ctx, q, stored, m)
}
