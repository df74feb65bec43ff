package reaper

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/failpoint"
	"github.com/penstock-broker/penstock/internal/filter"
	"github.com/penstock-broker/penstock/internal/guard"
	"github.com/penstock-broker/penstock/internal/ident"
	"github.com/penstock-broker/penstock/internal/jobs"
	"github.com/penstock-broker/penstock/redisq"
)

// The loader makes the jobs of replays: it scans the messages of a replay in their order and offers
// those that match to the queue of the replay, a few pages ahead of the deliveries. The progress in
// the store follows: it moves over a page once each job of it has an outcome or a row in open_jobs.
// A broker that starts, or takes the replay over, begins there, and so does the loader after a
// loss of Redis state; what has an outcome by then is not offered again.

const (
	// replayTick is the interval of rounds while there are replays, replayIdle without.
	replayTick = 200 * time.Millisecond
	replayIdle = time.Second
	// replayPage is the number of messages that one statement reads, replayAhead that of jobs that
	// are offered and not settled.
	replayPage  = 500
	replayAhead = 1000
	// replayPages bounds the pages of one round, so that a long stretch without a match delays no
	// other replay.
	replayPages = 20
	// siftBytes is what one round reads of payloads and headers for filters, siftFor how long it
	// evaluates them: a quarter of the time. The replays share both.
	siftBytes = 4 << 20
	siftFor   = 50 * time.Millisecond
)

// A loaded page of a replay is offered and not settled.
type loadedPage struct {
	through ident.ID // last message examined
	jobs    []ident.ID
	bytes   int64
}

// A loader makes the jobs of one replay. Only its loop uses it.
type loader struct {
	*Reaper
	r       *durable.Replay // as it was when the loader began; settled is its progress
	settled ident.ID
	pages   []loadedPage
	share   int // of siftBytes and siftFor: one of so many
}

func (r *Reaper) replayLoop(ctx context.Context) {
	loaders, history := map[uint32]*loader{}, r.history()
	timer := time.NewTimer(replayIdle)
	defer timer.Stop()
	var failures streak
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		if r.another(&history) { // the stored progress may be an earlier one
			clear(loaders)
		}
		replays := r.Catalogue.Replays()
		failures.round(ctx, r.Log, "a replay cannot go on; it tries again", r.replayRound(ctx, loaders, replays))
		wait := replayIdle
		if len(replays) > 0 {
			wait = replayTick
		}
		timer.Reset(wait)
	}
}

// replayRound lets every replay of this broker go on. It returns the last error.
func (r *Reaper) replayRound(ctx context.Context, loaders map[uint32]*loader, replays []*durable.Consumer) (failure error) {
	mine, filtered := map[uint32]bool{}, 0
	for _, l := range loaders {
		if l.r.Filter != "" {
			filtered++
		}
	}
	for _, k := range replays {
		if !r.Cluster.Owns(k.No) {
			continue
		}
		mine[k.No] = true
		if k.Replay.State != durable.ReplayRunning {
			continue // what is in the queue stays there, and its lanes are held
		}
		err := guard.Do("replay", func() error {
			l := loaders[k.No]
			if l == nil {
				now, err := r.Store.Replay(ctx, k.No)
				if err != nil || now.State.Ended() {
					return err
				}
				l = &loader{Reaper: r, r: &now, settled: now.Settled}
				r.restartAt(k.No, now.Settled)
				loaders[k.No] = l
			}
			l.share = max(filtered, 1)
			return l.round(ctx, k)
		})
		if err = unlessLost(err); err != nil {
			failure = err
		}
	}
	for no := range loaders {
		if !mine[no] {
			delete(loaders, no)
			r.drop(no)
		}
	}
	return failure
}

// restartAt makes the next scan of a replay begin at its progress.
func (r *Reaper) restartAt(no uint32, settled ident.ID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	l := &ledger{settled: settled}
	l.restart()
	r.ledgers[no] = l
}

// round settles what is over, offers what has room, and ends a replay that has nothing left.
func (l *loader) round(ctx context.Context, k *durable.Consumer) error {
	s := l.begin(k)
	if s == nil {
		return nil
	}
	if s.levels != nil { // the begin, or a loss of Redis state: what was offered is lost
		l.pages = nil
		l.save(s, func(g *ledger) { g.levels = nil })
	}
	if same, err := l.stillThere(ctx, s); !same || err != nil {
		return err
	}
	if !s.openDone {
		if err := l.scanOpen(ctx, s); err != nil {
			return err
		}
	}
	stats, err := l.Queue.Stats(ctx, k.No)
	if err != nil {
		return err
	}
	// The first page can be over only if the queue has no more jobs than the others.
	if len(l.pages) > 0 && stats.Ready+stats.Leased <= l.ahead()-len(l.pages[0].jobs) {
		if err := l.settle(ctx); err != nil {
			return err
		}
	}
	through := minID(l.r.Through, l.through())
	sieve, err := l.sieve()
	if err != nil {
		return err
	}
	for range replayPages {
		if s.checked.Compare(through) >= 0 || l.ahead() >= min(replayAhead, max(l.Queue.Window()/2, 1)) || sieve != nil && sieve.Spent() {
			break
		}
		if err := l.load(ctx, k, s, through, sieve); err != nil {
			return err
		}
	}
	// Jobs of a replay need no order, so none waits for one that the window has no room for.
	if stats.SpilledPriority >= 0 {
		if _, err := l.Queue.SettleSpilled(ctx, k.No, -1, stats.Spills); err != nil {
			return err
		}
	}
	if s.checked.Compare(l.r.Through) >= 0 && len(l.pages) == 0 && s.openDone {
		return l.end(ctx, k)
	}
	return nil
}

// ahead returns the number of jobs that are offered and not settled.
func (l *loader) ahead() (n int) {
	for _, p := range l.pages {
		n += len(p.jobs)
	}
	return n
}

// sieve returns the filter of the replay with the bounds of one round, nil without a filter.
func (l *loader) sieve() (*jobs.Sieve, error) {
	if l.r.Filter == "" {
		return nil, nil
	}
	f := filter.Of(l.r.Filter)
	if f == nil { // another version took it
		return nil, fmt.Errorf("the filter of replay %s is none for this broker", l.r.ID())
	}
	return &jobs.Sieve{Store: l.Store, Filter: f, Seen: l.Catalogue.Seen, Bytes: siftBytes / l.share, Until: time.Now().Add(siftFor / time.Duration(l.share))}, nil
}

// load offers the jobs of one page, or of its begin if the sieve reaches a bound. A crash behind the
// offer leaves jobs in Redis: the next loader finds them there, or their outcomes in the store.
func (l *loader) load(ctx context.Context, k *durable.Consumer, s *scan, through ident.ID, sieve *jobs.Sieve) error {
	page := min(replayPage, max(l.Queue.Window()/2, 1))
	heads, err := l.Store.Sizes(ctx, k.ChannelNo, s.checked, through, page)
	if err != nil {
		return err
	}
	p := loadedPage{through: through}
	if len(heads) == page {
		p.through = heads[len(heads)-1].ID
	}
	mine, err := l.matching(ctx, k, heads)
	if err != nil {
		return err
	}
	if sieve != nil && len(mine) > 0 {
		if mine, p.through, err = sift(ctx, k, sieve, mine, p.through); err != nil {
			return err
		}
	}
	offer := make([]durable.Head, len(mine))
	for i, m := range mine {
		offer[i] = m.Head
		p.jobs = append(p.jobs, m.ID)
		p.bytes += m.Bytes
	}
	done, err := l.Desk.Recover(ctx, k.No, s.epoch, offer)
	if err != nil {
		return err
	}
	failpoint.At(failpoint.AfterReplayPage)
	if done.Added > 0 {
		l.Touch(k.No)
	}
	if done.Upto < len(mine) { // the window is full: the rest comes later
		p.through = before(offer, done.Upto, s.checked)
		for _, m := range mine[done.Upto:] {
			p.bytes -= m.Bytes
		}
		p.jobs = p.jobs[:done.Upto]
		if done.Upto == 0 {
			return nil
		}
	}
	l.pages = append(l.pages, p)
	l.save(s, func(g *ledger) { g.checked = p.through })
	return nil
}

// sift returns those of mine for which the filter is true, and the last message examined: through,
// unless the sieve reaches a bound.
func sift(ctx context.Context, k *durable.Consumer, sieve *jobs.Sieve, mine []durable.Sized, through ident.ID) ([]durable.Sized, ident.ID, error) {
	ids := make([]ident.ID, len(mine))
	for i := range mine {
		ids[i] = mine[i].ID
	}
	match, read, err := sieve.Sift(ctx, k.ChannelNo, ids)
	if err != nil {
		return nil, through, err
	}
	if read < len(ids) {
		through = ids[read-1]
	}
	return slices.DeleteFunc(mine[:read], func(m durable.Sized) bool { return !match[m.ID] }), through, nil
}

// matching returns the messages of a page that the replay repeats. A job that it has begun stays,
// whatever became of the job of the consumer since.
func (l *loader) matching(ctx context.Context, k *durable.Consumer, heads []durable.Sized) ([]durable.Sized, error) {
	ids := make([]ident.ID, 0, len(heads))
	for _, h := range heads {
		if k.Concerns(h.Head) {
			ids = append(ids, h.ID)
		}
	}
	if len(ids) == 0 {
		return nil, nil
	}
	was, err := l.Store.JobStates(ctx, k.Replay.ConsumerNo, ids)
	if err != nil {
		return nil, err
	}
	now, err := l.Store.JobStates(ctx, k.No, ids)
	if err != nil {
		return nil, err
	}
	mine := heads[:0]
	for _, h := range heads {
		if k.Concerns(h.Head) && (l.r.Of.Matches(was[h.ID].Status) || now[h.ID].Status != durable.Waiting) {
			mine = append(mine, h)
		}
	}
	return mine, nil
}

// settle moves the progress over the pages whose jobs all have an outcome or a row in open_jobs.
func (l *loader) settle(ctx context.Context) error {
	for len(l.pages) > 0 {
		p := l.pages[0]
		if len(p.jobs) > 0 {
			states, err := l.Store.JobStates(ctx, l.r.No, p.jobs)
			if err != nil {
				return err
			}
			for _, id := range p.jobs {
				if states[id].Status == durable.Waiting {
					return nil
				}
			}
		}
		moved, err := l.Store.AdvanceReplay(ctx, l.r.No, l.settled, p.through, int64(len(p.jobs)), p.bytes)
		if err != nil {
			return err
		}
		if !moved { // another broker looks after it, too, or it has ended: begin at its progress
			now, err := l.Store.Replay(ctx, l.r.No)
			if err != nil {
				return err
			}
			l.settled, l.pages = now.Settled, nil
			l.restartAt(l.r.No, now.Settled)
			return redisq.ErrLost
		}
		failpoint.At(failpoint.AfterReplayAdvance)
		l.settled, l.pages = p.through, l.pages[1:]
		l.mu.Lock()
		if g := l.ledgers[l.r.No]; g != nil {
			g.settled = p.through
		}
		l.mu.Unlock()
	}
	return nil
}

// end ends the replay, unless a job waits for another attempt.
func (l *loader) end(ctx context.Context, k *durable.Consumer) error {
	open, err := l.Store.OpenJobs(ctx, k.No, ident.ID{}, 1)
	if err != nil || len(open) > 0 {
		return err
	}
	r, err := l.Store.SetReplayState(ctx, k.No, durable.ReplayDone)
	if err != nil {
		return err
	}
	l.Log.Info("a replay is done", "consumer", l.name(k.No), "replay", r.ID(), "messages", r.Jobs, "delivered", r.Delivered, "dead", r.Dead)
	return l.Catalogue.Refresh(ctx)
}
