package durable

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"slices"
	"time"
)

// A Hold keeps all jobs of a consumer back until a time, because an answer of the consumer asked for
// that.
type Hold struct {
	ConsumerNo uint32
	SinceMs    int64
	UntilMs    int64
	By         string // the answer, for people; cut to 255 bytes
	// Version is that of the consumer when the answer came. KeepHolds stores nothing for another one.
	Version int64
}

// Until is the end of the hold.
func (h *Hold) Until() time.Time { return fromMillis(h.UntilMs) }

// maxHeldBy is the width of the column.
const maxHeldBy = 255

func (h *Hold) columns() columns {
	return columns{
		{"consumer_no", &h.ConsumerNo},
		{"since_ms", &h.SinceMs},
		{"until_ms", &h.UntilMs},
		{"held_by", asBytes{&h.By}},
	}
}

var (
	// The lock keeps a change of the consumer, which ends its hold, from coming in between.
	selectHeldVersion = locking(`
SELECT version
FROM consumers
WHERE no = ?`, updateLock)

	insertHold = keepFirst(`
INSERT INTO holds (`+new(Hold).columns().names()+`
)
VALUES (?, 0, 0, '')`, "consumer_no")

	fromHolds = `
SELECT` + new(Hold).columns().names() + `
FROM holds`

	selectHolds = fromHolds + `
WHERE until_ms > ?`

	selectHold = fromHolds + `
WHERE consumer_no = ?`

	updateHold = `
UPDATE holds
SET` + new(Hold).columns()[1:].sets() + `
WHERE consumer_no = ?
  AND until_ms < ?`
)

var deleteHold = deleteOf("holds")

// KeepHolds stores holds in one transaction. A later end stays. kept[i] is false where the consumer has
// changed since its answer: what it said may be about its former address.
func (s *Store) KeepHolds(ctx context.Context, holds []Hold) (kept []bool, err error) {
	order := make([]int, len(holds)) // of the locks
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return int(holds[a].ConsumerNo) - int(holds[b].ConsumerNo) })
	err = s.run(ctx, transaction{name: "keep holds of consumers", harmless: true}, func(ctx context.Context,
		tx *sql.Tx) error {
		kept = make([]bool, len(holds))
		for _, i := range order {
			h := &holds[i]
			var version int64
			err := tx.QueryRowContext(ctx, s.dialect.sql(selectHeldVersion), h.ConsumerNo).Scan(&version)
			if errors.Is(err, sql.ErrNoRows) || err == nil && version != h.Version {
				continue
			}
			if err != nil {
				return err
			}
			if err := exec(ctx, tx, s.dialect.sql(insertHold), h.ConsumerNo); err != nil {
				return err
			}
			if err := exec(ctx, tx, updateHold, h.SinceMs, h.UntilMs, []byte(cutTo(h.By, maxHeldBy)), h.ConsumerNo,
				h.UntilMs); err != nil {
				return err
			}
			kept[i] = true
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return kept, nil
}

// Holds returns the holds that are not over at that time.
func (s *Store) Holds(ctx context.Context, nowMs int64) ([]Hold, error) {
	return readAll[Hold](ctx, s, "read holds", selectHolds, nowMs)
}

// HoldOf returns the last hold of a consumer, which may be over. It is the zero value where there is
// none.
func (s *Store) HoldOf(ctx context.Context, consumerNo uint32) (h Hold, err error) {
	err = repeat(ctx, "read a hold", func(ctx context.Context) (err error) {
		if h, err = selectOne[Hold](ctx, s.reads, selectHold, consumerNo); errors.Is(err, sql.ErrNoRows) {
			h, err = Hold{}, nil
		}
		return err
	})
	return h, err
}

// EndHolds ends the holds of consumers.
func (s *Store) EndHolds(ctx context.Context, consumers []uint32) error {
	if len(consumers) == 0 {
		return nil
	}
	err := s.run(ctx, transaction{name: "end holds of consumers", harmless: true}, func(ctx context.Context,
		tx *sql.Tx) error {
		ended := int64(0)
		for _, no := range consumers {
			res, err := tx.ExecContext(ctx, deleteHold, no)
			if err != nil {
				return err
			}
			n, err := res.RowsAffected()
			if err != nil {
				return err
			}
			ended += n
		}
		if ended == 0 {
			return errUnchanged
		}
		return nil
	})
	if errors.Is(err, errUnchanged) {
		return nil
	}
	return err
}

// sameCall reports whether a consumer is called as before: at the same address, with the same
// credentials. Where it is not, its hold ends: the answer that began it came from elsewhere, or was to
// another caller.
func sameCall(a, b *Consumer) bool {
	return a.CallbackURL == b.CallbackURL && a.Type == b.Type && a.Protocol == b.Protocol && a.Token == b.Token &&
		(a.Policy == b.Policy || callFields(a.Policy) == callFields(b.Policy))
}

// callFields are the members of a policy that say how the consumer is called.
func callFields(policy string) (f struct{ Authorization, Headers, SigningSecret string }) {
	if policy != "" {
		_ = json.Unmarshal([]byte(policy), &f) // one that is no object has none
	}
	return f
}
