package quota

import (
	"context"
	"time"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/ident"
)

const (
	// countAtOnce bounds the messages of one transaction, and channelPage the channels of one read.
	countAtOnce, channelPage = 2000, 1000
	// countPause is the pause after a transaction that left messages, as a multiple of its time, and
	// schedulePause that after a count of schedules, which reads all of them.
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

// load reads the sums for the first time. Others wait for it. After a failure nobody waits for a
// second: a store that is away takes no message either, and the journal must not wait for it.
func (q *Quota) load(ctx context.Context) {
	q.loading <- struct{}{}
	defer func() { <-q.loading }()
	if q.loaded.Load() || time.Since(q.failed) < time.Second {
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
		add(no, sum.Bytes, sum.Messages)
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
	sums map[uint32]durable.StoredSum
	cut  ident.ID
	at   time.Time
	took time.Duration
}

// schedules counts the schedules, or returns the last count where another one would take more than a
// twentieth of the time.
func (q *Quota) schedules(ctx context.Context, cut ident.ID) (plan, error) {
	q.mu.Lock()
	last := q.plan
	q.mu.Unlock()
	if last.sums != nil && time.Since(last.at) < schedulePause*last.took {
		return last, nil
	}
	began := time.Now()
	sums, err := q.o.Store.ScheduledSums(ctx, cut)
	if err != nil {
		return plan{}, err
	}
	now := plan{sums, cut, time.Now(), time.Since(began)}
	q.mu.Lock()
	q.plan = now
	q.mu.Unlock()
	return now, nil
}
