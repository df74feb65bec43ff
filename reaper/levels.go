package reaper

import (
	"context"

	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/redisq"
)

// scanLevels loads a backlog by priority, highest first, until the window is full or
// every message up to through is over or in Redis. It reports whether jobs remain
// outside the window. newest is the channel's last message.
func (r *Reaper) scanLevels(ctx context.Context, ch *catalogue.Channel, s *scan, through,
	newest ident.ID) (bool, error) {
	stats, err := r.Queue.Stats(ctx, s.k.No)
	if err != nil {
		return true, err
	}
	next, err := r.Queue.Peek(ctx, s.k.No, nil, 1)
	if err != nil {
		return true, err
	}
	// The queue is blocked when every job of the window waits for a more urgent job
	// outside it: claims make no room before that job is loaded.
	blocked := stats.Ready > 0 && len(next) == 0
	// The window is crowded when it has no room for a page worth reading; claims make
	// room soon. Only levels more urgent than fullAt are scanned then: their jobs may
	// have been too new for the last scan, and they need no room. The ready jobs suffice
	// for the claims meanwhile, so the scan leaves the spill as it is.
	crowded := stats.Ready > r.Queue.Window()*3/4 && !blocked
	if crowded {
		r.save(s, func(l *scanState) { l.withheldAt = 0 })
	}
	levels, err := r.Store.Levels(ctx, ch.No)
	if err != nil {
		return true, err
	}
	for _, priority := range append(levels, 0) {
		if crowded && len(s.levels) > 0 && priority <= s.fullAt {
			break
		}
		full, err := r.scanLevel(ctx, ch, s, priority, through)
		if err != nil {
			return true, err
		}
		if full {
			r.save(s, func(l *scanState) { l.fullAt = priority })
			if !crowded && !r.withhold(s, stats, through, newest) {
				_, err = r.Queue.ReplaceSpilled(ctx, s.k.No, priority, stats.Spills)
			}
			return true, err
		}
	}
	if crowded {
		return true, nil
	}
	if r.withhold(s, stats, through, newest) {
		return true, nil
	}
	settled, err := r.Queue.ReplaceSpilled(ctx, s.k.No, -1, stats.Spills)
	if err != nil || !settled { // other jobs were spilled meanwhile: scan again
		return true, err
	}
	r.save(s, func(l *scanState) { l.checked, l.levels = through, nil })
	return false, nil
}

// withhold reports whether the less urgent jobs of the window must go on waiting although
// the scan has loaded every job that it can: the jobs spilled last are too new for it.
// The jobs wait until the scan has passed the time at which withholding began, and once more
// if jobs were spilled meanwhile. They do not wait for the newest message, because a busy channel
// always has a newer one. Only a more urgent spilled job starts the waits again. The wait is
// measured by the progress of the scan and not by a clock, because a slow machine scans late.
//
// An empty window is no sign that nothing is outside: new and less urgent jobs would enter it before
// those that are too new.
func (r *Reaper) withhold(s *scan, stats redisq.Stats, through, newest ident.ID) bool {
	begin := func(again bool) bool {
		r.save(s, func(l *scanState) {
			l.withheldAt, l.withheldFor, l.withheldSpills, l.withheldAgain = r.Cluster.NowMs(), stats.SpilledPriority,
				stats.Spills, again
		})
		return true
	}
	switch {
	case stats.SpilledPriority < 0 || newest.Compare(through) <= 0:
	case s.withheldAt == 0 || stats.SpilledPriority > s.withheldFor:
		return begin(false)
	case through.Millis() <= s.withheldAt:
		return true
	case !s.withheldAgain && stats.Spills > s.withheldSpills:
		return begin(true)
	}
	r.save(s, func(l *scanState) { l.withheldAt = 0 })
	return false
}

// A stride is the number of messages of a level that one comparison of counts covers. The
// first page without an open job starts it, each stride that is over doubles it, and an
// open job ends it.
const firstStride, longestStride = 1000, 32_000

// scanLevel loads one priority and reports whether the window is full, or a bound of the round is
// reached. Claims drain a
// backlog by priority, so a whole level may be over already: scanLevel passes such
// stretches by comparing counts.
func (r *Reaper) scanLevel(ctx context.Context, ch *catalogue.Channel, s *scan, priority int,
	through ident.ID) (full bool, err error) {
	for stride := 0; ; {
		watermark := s.level(priority)
		if watermark.Compare(through) >= 0 {
			return false, nil
		}
		if stride > 0 {
			last, over, err := r.Store.LevelDelivered(ctx, *s.k, priority, watermark, through, stride)
			if err != nil {
				return false, err
			}
			if over {
				r.save(s, func(l *scanState) { l.setLevel(priority, last) })
				stride = min(2*stride, longestStride)
				continue
			}
			stride = 0
		}
		heads, err := r.Store.LevelHeads(ctx, ch.No, priority, watermark, through, pageSize)
		if err != nil {
			return false, err
		}
		last := through
		if len(heads) == pageSize {
			last = heads[len(heads)-1].ID
		}
		mine, read, err := r.concerned(ctx, s, heads)
		if err != nil {
			return false, err
		}
		if read < len(heads) {
			last = heads[read-1].ID
		}
		open := s.open
		upto, err := r.offer(ctx, ch, s, mine)
		if err != nil {
			return false, err
		}
		if len(heads) == pageSize && s.open == open {
			stride = firstStride
		}
		if upto < len(mine) {
			watermark = before(mine, upto, watermark)
			r.save(s, func(l *scanState) { l.setLevel(priority, watermark) })
			return true, nil
		}
		r.save(s, func(l *scanState) { l.setLevel(priority, last) })
		if s.matcher != nil && s.matcher.Spent() { // the next round goes on
			return true, nil
		}
	}
}

func (l *scanState) setLevel(priority int, watermark ident.ID) {
	if l.levels == nil {
		return
	}
	l.levels[priority] = watermark
}
