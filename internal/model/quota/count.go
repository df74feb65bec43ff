package quota

import (
	"context"
	"slices"
	"time"

	"github.com/penstock-broker/penstock/internal/model/ident"
)

const (
	// countAtOnce bounds the messages of one transaction, and channelPage the channels of one read.
	countAtOnce, channelPage = 2000, 1000
	// countPause is the pause after a transaction that left messages, as a multiple of its time, and
	// schedulePause that after a count of schedules, which reads all of them that are of producers with a
	// bound: index entries for their number, rows for their bytes.
	countPause, schedulePause = 4, 20
	// loadWithin bounds the read that the first publish of a producer with a bound waits for.
	loadWithin = 500 * time.Millisecond
	// settle is how far the counts stay behind the store's time. An ID that is older is refused.
	settle = 3 * time.Second
)

// cut returns the first ID that is not counted: the beginning of a second.
func (q *Quota) cut() ident.ID {
	return ident.AtMillis((q.o.Cluster.PastMs() - settle.Milliseconds()) / 1000 * 1000)
}

// round counts the messages of the channels of this broker, and reads the sums.
func (q *Quota) round(ctx context.Context) error {
	if err := q.read(ctx); err != nil {
		return err
	}
	cut := q.cut()
	for after := uint32(0); ; {
		page, err := q.o.Store.LatestMessages(ctx, after, channelPage)
		if err != nil {
			return err
		}
		for _, latest := range page {
			after = latest.ChannelNo
			if latest.ID.IsZero() || !q.o.Cluster.Owns(after) || latest.ID.Compare(q.mark(after)) <= 0 {
				continue
			}
			if err := q.count(ctx, after, cut); err != nil {
				return err
			}
		}
		if len(page) < channelPage {
			return q.read(ctx)
		}
	}
}

// mark returns up to which message of a channel the sums count.
func (q *Quota) mark(channel uint32) ident.ID {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.marks[channel]
}

// count counts the messages of a channel.
func (q *Quota) count(ctx context.Context, channel uint32, cut ident.ID) error {
	for {
		began := time.Now()
		more, err := q.o.Store.CountStored(ctx, channel, cut, countAtOnce)
		if err != nil || !more {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(countPause * time.Since(began)):
		}
	}
}

// knows reports whether the sums are there, and have all that a producer with such bounds stores: its
// schedules are counted once it has a bound.
func (q *Quota) knows(producer uint32, most amount) bool {
	if !q.loaded.Load() {
		return false
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	return (most.scheduled == 0 || includes(q.plan.counted, producer)) &&
		(most.bytes == 0 || includes(q.plan.kept, producer))
}

// includes reports whether a producer is one of those, which are in order; nil: all.
func includes(of []uint32, producer uint32) bool {
	if of == nil {
		return true
	}
	_, found := slices.BinarySearch(of, producer)
	return found
}

// load reads the sums where they are not known. Others wait for it. After a failure nobody waits for a
// second: a store that is away takes no message either, and the journal must not wait for it.
func (q *Quota) load(ctx context.Context, producer uint32, most amount) {
	q.loading <- struct{}{}
	defer func() { <-q.loading }()
	if q.knows(producer, most) || time.Since(q.failed) < time.Second {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, loadWithin)
	defer cancel()
	if err := q.read(ctx); err != nil {
		q.failed = time.Now()
		q.o.Log.Warn("what producers store cannot be read; a bound counts from now on", "error", err)
	}
}

// read reads the sums, and forgets what this broker knows of itself and is in them.
func (q *Quota) read(ctx context.Context) error {
	cut := q.cut()
	stored, err := q.o.Store.Stored(ctx)
	if err != nil {
		return err
	}
	scheduled, err := q.schedules(ctx, cut)
	if err != nil {
		return err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	next := map[uint32]amount{}
	add := func(no uint32, bytes, schedules int64) {
		sum := next[no]
		sum.add(amount{bytes, schedules})
		next[no] = sum
	}
	for no, sum := range stored.Sums {
		add(no, sum.Bytes, 0)
	}
	for no, bytes := range stored.Bulks {
		add(no, bytes, 0)
	}
	for no, sum := range scheduled.sums {
		add(no, sum.bytes, sum.scheduled)
	}
	q.sums, q.marks = next, stored.Marks
	for no, a := range q.accounts {
		for b := range a.recent {
			end := stored.Marks[b.channel]
			switch b.channel {
			case 0:
				end = scheduled.cut
			case bulks:
				end = cut
			}
			if b.second < end.Millis()/1000 {
				delete(a.recent, b)
			}
		}
		if len(a.recent) == 0 && a.flight == (amount{}) {
			delete(q.accounts, no)
		}
	}
	q.loaded.Store(true)
	return nil
}

// A plan is what schedules are counted, with IDs below cut.
type plan struct {
	sums map[uint32]amount
	cut  ident.ID
	at   time.Time
	took time.Duration

	counted, kept []uint32 // the producers whose schedules that wait, and bytes of schedules, are in it; nil: all
}

// schedules counts the schedules of producers with a bound, or returns the last count where another one
// would take more than a twentieth of the time.
func (q *Quota) schedules(ctx context.Context, cut ident.ID) (plan, error) {
	q.mu.Lock()
	last := q.plan
	q.mu.Unlock()
	counted, kept := q.bounded()
	if last.sums != nil && time.Since(last.at) < schedulePause*last.took && same(counted, last.counted) &&
		same(kept, last.kept) {
		return last, nil
	}
	began := time.Now()
	counts, err := q.o.Store.ScheduledCounts(ctx, cut, counted)
	if err != nil {
		return plan{}, err
	}
	bytes, err := q.o.Store.ScheduledBytes(ctx, cut, kept)
	if err != nil {
		return plan{}, err
	}
	sums := map[uint32]amount{}
	for no, n := range counts {
		sums[no] = amount{scheduled: n}
	}
	for no, n := range bytes {
		sums[no] = amount{n, sums[no].scheduled}
	}
	now := plan{sums, cut, time.Now(), time.Since(began), counted, kept}
	q.mu.Lock()
	q.plan = now
	q.mu.Unlock()
	return now, nil
}

// bounded returns the producers with a bound of schedules that wait, and with one of bytes; nil: all.
func (q *Quota) bounded() (scheduled, bytes []uint32) {
	scheduled, bytes = []uint32{}, []uint32{}
	for no, set := range q.o.Catalogue.Bounds() {
		if set.Scheduled.Or(0) > 0 {
			scheduled = append(scheduled, no)
		}
		if set.Stored.Or(0) > 0 {
			bytes = append(bytes, no)
		}
	}
	if q.o.MaxScheduled > 0 {
		scheduled = nil
	}
	if q.o.MaxStored > 0 {
		bytes = nil
	}
	slices.Sort(scheduled)
	slices.Sort(bytes)
	return scheduled, bytes
}

func same(a, b []uint32) bool { return (a == nil) == (b == nil) && slices.Equal(a, b) }
