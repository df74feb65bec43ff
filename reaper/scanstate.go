package reaper

import (
	"context"
	"time"

	"github.com/penstock-broker/penstock/internal/model/ident"
)

// A scanState is the progress of the reconciler on one consumer. It exists in memory only:
// a broker that starts, or takes a consumer over, begins at the settled watermark.
type scanState struct {
	// settled: every message up to it has an outcome or an open_jobs row. Stored.
	settled ident.ID
	// checked: since the last loss of Redis state, every message up to it was seen in
	// Redis or is over.
	checked ident.ID
	// lost is set when Redis lost state: the next scan restarts the scan state.
	lost bool
	// levels is not nil while the backlog is larger than the window. It has one checked
	// watermark per priority, so that the highest priority comes first.
	levels map[int]ident.ID
	// spilled is set when a claim reports that jobs are outside the window.
	spilled bool
	// fullAt is the priority at which the last scan found the window full. It has no
	// meaning while levels is empty.
	fullAt int
	// withheldAt is the time, by the store's clock in Unix ms, at which withhold began to
	// withhold less urgent jobs; 0 when it withholds none. withheldFor is the highest
	// spilled priority then, withheldSpills the count of spills, and withheldAgain says that
	// this is the second wait.
	withheldAt     int64
	withheldFor    int
	withheldSpills int64
	withheldAgain  bool
	// openFrom is the first open_jobs row that this round has not offered to Redis yet.
	// openDone is set at the end of the round.
	openFrom ident.ID
	openDone bool
	// since is when the scan state began or was restarted, by the store's clock in Unix ms: what was stored
	// before it may be unknown to Redis. told is set when Redis was told that all of that was scanned.
	since int64
	told  bool
}

// whole reports whether everything that was stored before the scan state began was scanned. newest is the
// channel's last message.
func (l *scanState) whole(newest ident.ID) bool {
	return l.openDone && l.levels == nil && (l.checked.Compare(newest) >= 0 || l.checked.Millis() >= l.since)
}

// restart sets the watermarks back to the settled one, which does not depend on Redis.
// The next scan goes by priority, so that the most urgent jobs return first after a loss.
func (l *scanState) restart(nowMs int64) {
	l.lost, l.told, l.since = false, false, nowMs
	l.checked = l.settled
	l.levels, l.withheldAt = map[int]ident.ID{}, 0
	l.openFrom, l.openDone = ident.ID{}, false
}

// level returns the watermark of a priority. A level without one begins at checked, the
// position of the common scan.
func (l *scanState) level(priority int) ident.ID {
	if watermark, ok := l.levels[priority]; ok {
		return watermark
	}
	return l.checked
}

// rereadWatermarks reads the settled watermarks again after brokers came or went. The
// scan of a consumer that another broker leaves to this one then begins at the present
// watermark, and not at the one that was stored when this process started.
func (r *Reaper) rereadWatermarks(ctx context.Context) error {
	r.mu.Lock()
	reread := r.reread
	r.reread = false
	r.mu.Unlock()
	if !reread {
		return nil
	}
	err := r.readWatermarks(ctx)
	if err != nil {
		r.mu.Lock()
		r.reread = true
		r.mu.Unlock()
	}
	return err
}

func (r *Reaper) readWatermarks(ctx context.Context) error {
	if err := r.cleanWatermarks(ctx); err != nil {
		return err
	}
	history := r.history()
	watermarks, err := r.Store.Watermarks(ctx)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.restored.count != history {
		return nil // a scan from the beginning needs none
	}
	for no, l := range r.scanStates { // of another broker until now, which may have begun again after a restoration
		if k := r.Catalogue.ConsumerByNo(no); l.lost && k != nil && k.Replay == nil {
			l.settled = watermarks[no]
		}
	}
	for consumer, watermark := range watermarks {
		if r.deleted(consumer) {
			continue
		}
		l := r.scanStates[consumer]
		if l == nil {
			l = &scanState{settled: watermark}
			l.restart(r.Cluster.NowMs())
			r.scanStates[consumer] = l
		}
		if watermark.Compare(l.settled) > 0 {
			l.settled = watermark
		}
	}
	return nil
}

func (r *Reaper) loadWatermarks(ctx context.Context) bool {
	for {
		err := r.readWatermarks(ctx)
		if err == nil {
			return true
		}
		r.Log.Warn("the settled watermarks cannot be read; the reconciler tries again", "error", err)
		select {
		case <-ctx.Done():
			return false
		case <-time.After(r.tick()):
		}
	}
}

// forget marks the scan state of a consumer that another broker looks after: the scan state
// restarts when the consumer returns to this broker.
func (r *Reaper) forget(consumer uint32) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.resting, consumer)
	if l := r.scanStates[consumer]; l != nil {
		l.lost = true
	}
}
