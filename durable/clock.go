package durable

import (
	"context"
	"time"

	"github.com/penstock-broker/penstock/internal/model/ident"
)

// The store's clock is that of the server, and never goes back where something depends on it: one
// row has a floor, which the renewals of node leases raise, and what is added to the server's clock
// while that is behind the floor. The guard of an insert reads the row with a lock, so after a raise
// has committed no message older than MaxIDAge before the floor appears, whatever the server's clock
// does. The scans stay behind the floor.
//
// Where the row was raised and the broker dies before it renews its lease, the floor is higher and
// nothing else has changed.

const (
	// raiseEvery is the age from which a renewal raises the floor. Several brokers share the raises,
	// because each makes all inserts wait for its commit.
	raiseEvery = 500 * time.Millisecond
	// stepLeast is how far the server's clock goes back in what counts as a step. Less is jitter
	// between readings, and the store's clock stands still for it.
	stepLeast = 100 * time.Millisecond
	// aheadFor bounds how far the clock runs ahead of the floor by what is added to the server's:
	// a server whose clock went to 1970 and comes back must not lead to the next century.
	aheadFor = 5 * time.Second
	// slew is the part of the time by which a clock that is ahead of the server's falls back to it.
	slew = 20
)

// A Clock is the row of the store's clock at a renewal.
type Clock struct {
	FloorMs int64 // the store's clock never shows less
	AheadMs int64 // how far it is ahead of the server's, which went back
	Steps   int64 // how often the server's clock went back
	Beat    int64 // counts the raises
	History int64 // the name of the history of the store, see history.go
}

// A clockReading is a Clock with the server's clock at the same moment.
type clockReading struct {
	Clock
	serverMs int64
}

// now is the time of the store. The guard has the same rule in SQL.
func (r clockReading) now() int64 {
	return max(r.FloorMs, r.serverMs, min(r.serverMs+r.AheadMs, r.FloorMs+aheadFor.Milliseconds()))
}

// raised returns the Clock after a raise, and whether it is due. leastMs is a time that the clock
// has certainly passed.
func (r clockReading) raised(leastMs int64) (next Clock, due bool) {
	next, now := r.Clock, r.now()
	next.Beat++
	least := max(r.FloorMs, leastMs)
	if least-(r.serverMs+r.AheadMs) > stepLeast.Milliseconds() {
		next.FloorMs, next.AheadMs, next.Steps = least, least-r.serverMs, r.Steps+1
		return next, true
	}
	next.FloorMs = max(now, least)
	next.AheadMs = max(min(r.AheadMs-(now-r.FloorMs)/slew, now-r.serverMs), 0)
	return next, leastMs > now || now-r.FloorMs >= raiseEvery.Milliseconds()
}

var selectClock = statement{
	mysql:  clockWith("CAST(UNIX_TIMESTAMP(SYSDATE(3)) * 1000 AS SIGNED)"),
	sqlite: clockWith("0"),
}

func clockWith(server string) string {
	return `
SELECT
    COALESCE(MAX(ms), 0),
    COALESCE(MAX(ahead_ms), 0),
    COALESCE(MAX(steps), 0),
    COALESCE(MAX(beat), 0),
    COALESCE(MAX(history), 0),
    ` + server + `
FROM clock
WHERE no = 0`
}

var insertClock = keepFirst(`
INSERT INTO clock (
    no,
    ms,
    ahead_ms,
    steps,
    beat,
    history
)
VALUES (0, 0, 0, 0, 0, 0)`, "no")

const (
	updateClock = `
UPDATE clock
SET
    ms = ?,
    ahead_ms = ?,
    steps = ?,
    beat = ?,
    history = ?
WHERE no = 0
  AND beat = ?
  AND history = ?`

	// The clock is the first to be lower than a watermark where it was not kept yet.
	selectLastWatermark = `
SELECT MAX(message_id)
FROM marks`
)

// NowMs returns the time of the clock that decides about node leases and the age of IDs, in
// Unix ms.
func (s *Store) NowMs(ctx context.Context) (int64, error) {
	ms, err := s.now(ctx, s.reads)
	if err != nil {
		return 0, failedTo("clock", err)
	}
	return ms, nil
}

func (s *Store) now(ctx context.Context, q querier) (int64, error) {
	r, err := s.readClock(ctx, q)
	return r.now(), err
}

func (s *Store) readClock(ctx context.Context, q querier) (r clockReading, err error) {
	err = q.QueryRowContext(ctx, s.dialect.sql(selectClock)).Scan(&r.FloorMs, &r.AheadMs, &r.Steps, &r.Beat, &r.History,
		&r.serverMs)
	if s.dialect == sqliteDialect {
		r.serverMs = s.processMs()
	}
	return r, err
}

// setClock stores a Clock if the row is still that of the reading.
func (s *Store) setClock(ctx context.Context, r clockReading, next Clock) (set bool, err error) {
	res, err := s.db.ExecContext(ctx, updateClock, next.FloorMs, next.AheadMs, next.Steps, next.Beat, next.History,
		r.Beat, r.History)
	if err != nil {
		return false, err
	}
	n, err := res.RowsAffected()
	if n == 0 && err == nil { // another broker was faster, or the row is missing
		err = exec(ctx, s.db, s.dialect.sql(insertClock))
	}
	return n == 1, err
}

// raiseClock raises the floor to the present time where that is due, and at least to leastMs. seen is the
// Clock that the caller knows, the zero value for none: where the store went back, raiseClock
// names its history anew.
func (s *Store) raiseClock(ctx context.Context, seen Clock, leastMs int64) (Clock, error) {
	for {
		r, err := s.readClock(ctx, s.reads)
		if err != nil {
			return Clock{}, err
		}
		next, due := r.raised(leastMs)
		if r.wentBack(seen) {
			next.History, due = nextHistory(r.History, seen.History), true
		}
		if !due {
			return r.Clock, nil
		}
		if set, err := s.setClock(ctx, r, next); set || err != nil {
			return next, err
		}
		if ctx.Err() != nil {
			return Clock{}, ctx.Err()
		}
	}
}

// leastClock returns a time that the store's clock has passed by what scans have stored.
func (s *Store) leastClock(ctx context.Context) (int64, error) {
	var last []byte
	err := s.reads.QueryRowContext(ctx, selectLastWatermark).Scan(&last)
	if err != nil || len(last) != ident.Size {
		return 0, err
	}
	return ident.ID(last).Millis() + MaxIDAge.Milliseconds() + 1, nil
}

// processMs is the clock of this process, which is the server of SQLite.
func (s *Store) processMs() int64 {
	if s.clock != nil {
		return s.clock()
	}
	return time.Now().UnixMilli()
}
