package durable

import (
	"database/sql"
	"errors"
)

// The guard of an insert: what must hold at the moment at which messages are stored.

const (
	sqliteNode = `
SELECT
    n.expires_ms,
    k.ms,
    k.ahead_ms
FROM nodes n
JOIN clock k
  ON k.no = 0
WHERE n.no = ?
  AND n.token = ?
  AND n.least_version <= ?`

	sqliteAudience = `
SELECT
    audience,
    shape
FROM channels
WHERE no = ?
  AND paused = 0`
)

// appendGuard appends the guard of a row on MySQL; see messages.
func appendGuard(b []byte, node NodeLease, e entry) []byte {
	b = append(b, `(SELECT c.audience FROM channels c JOIN nodes n ON n.no = `...)
	b = appendUint(b, uint64(node.No))
	b = append(b, ` JOIN clock k ON k.no = 0 WHERE c.no = `...)
	b = appendUint(b, uint64(e.ChannelNo))
	b = append(b, ` AND c.audience = `...)
	b = appendInt(b, int64(e.Audience))
	b = append(b, ` AND c.shape = `...)
	b = appendInt(b, e.Shape)
	b = append(b, ` AND c.paused = 0 AND n.token = `...)
	b = appendHex(b, node.Token[:])
	b = append(b, ` AND n.least_version <= `...)
	b = appendInt(b, node.Known)
	b = append(b, ` AND LEAST(n.expires_ms - 1, `...)
	b = appendInt(b, e.ID.Millis()+MaxIDAge.Milliseconds())
	return append(
		b,
		`) >= GREATEST(k.ms, UNIX_TIMESTAMP(SYSDATE(3)) * 1000, LEAST(UNIX_TIMESTAMP(SYSDATE(3)) * 1000 + k.ahead_ms, k.ms + 5000)))`...)
}

// fresh is the guard. SQLite has one writer, so no lease, audience, shape or pause changes until
// the commit.
func (b *sqliteBatch) fresh(part []entry) (bool, error) {
	clock := clockReading{serverMs: b.store.processMs()}
	var expires int64
	err := b.tx.QueryRowContext(b.ctx, sqliteNode, b.node.No, b.node.Token[:], b.node.Known).Scan(&expires, &clock.FloorMs,
		&clock.AheadMs)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	now := clock.now()
	if err != nil || expires <= now {
		return false, err
	}
	audience, shape := -1, int64(0)
	for i, e := range part {
		if i == 0 || part[i-1].ChannelNo != e.ChannelNo {
			err := b.tx.QueryRowContext(b.ctx, sqliteAudience, e.ChannelNo).Scan(&audience, &shape)
			if errors.Is(err, sql.ErrNoRows) {
				return false, nil
			}
			if err != nil {
				return false, err
			}
		}
		if e.Audience != audience || e.Shape != shape || e.ID.Millis()+MaxIDAge.Milliseconds() < now {
			return false, nil
		}
	}
	return true, nil
}
