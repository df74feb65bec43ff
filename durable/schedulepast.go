package durable

import (
	"context"
	"database/sql"
)

// keyOf is a Key in its channel.
type keyOf struct {
	channelNo uint32
	key       string
}

// lockKeys waits for a transaction that is about to commit one of these Keys.
var lockKeys = locking(`
SELECT msg_key
FROM message_keys
WHERE channel_no = ?
  AND msg_key IN (?...)`, "LOCK IN SHARE MODE")

// schedulePast sets the results of those schedules of a batch, which are Past, in one transaction.
func (s *Store) schedulePast(ctx context.Context, node NodeLease, batch []*Scheduled, which []int, errs []error) {
	if len(which) == 0 {
		return
	}
	err := s.run(ctx, transaction{name: "look for schedules", harmless: true}, func(ctx context.Context,
		tx *sql.Tx) error {
		if err := maySchedule(ctx, tx, node, batch, which); err != nil {
			return err
		}
		uses, keys := map[uint32][]entry{}, map[uint32][]int{}
		for _, i := range which {
			m := batch[i]
			errs[i] = ErrPast
			switch {
			case m.Idempotent():
				uses[m.ChannelNo] = append(uses[m.ChannelNo], entry{m.planned(), i})
			case m.Key != "":
				keys[m.ChannelNo] = append(keys[m.ChannelNo], i)
			}
		}
		for _, all := range uses {
			for _, part := range chunks(all, maxInList) {
				if _, err := s.resolveUses(ctx, tx, part, errs); err != nil {
					return err
				}
			}
		}
		for no, all := range keys {
			for _, part := range chunks(all, maxInList) {
				if err := s.repeatedKeys(ctx, tx, no, batch, part, errs); err != nil {
					return err
				}
			}
		}
		return nil
	})
	if err != nil {
		for _, i := range which {
			errs[i] = err
		}
	}
}

// repeatedKeys sets the results of those schedules of a channel whose Key is taken. It reads what has the Key one
// after another: their payloads would be much together.
func (s *Store) repeatedKeys(ctx context.Context, tx *sql.Tx, channelNo uint32, batch []*Scheduled, which []int,
	errs []error) error {
	args := []any{channelNo}
	for _, i := range which {
		args = append(args, []byte(batch[i].Key))
	}
	taken := map[string]bool{}
	err := each(ctx, tx, list(s.dialect.sql(lockKeys), len(which)), args, func(r *sql.Rows) error {
		var key []byte
		err := r.Scan(&key)
		taken[string(key)] = true
		return err
	})
	if err != nil {
		return err
	}
	for _, i := range which {
		if !taken[batch[i].Key] {
			continue
		}
		if errs[i] = s.scheduleRefused(ctx, tx, batch[i], nil); repeatable(errs[i]) {
			return errs[i]
		}
	}
	return nil
}
