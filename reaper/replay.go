package reaper

import (
	"context"
	"time"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/failpoint"
	"github.com/penstock-broker/penstock/internal/guard"
	"github.com/penstock-broker/penstock/internal/ident"
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
		if _, err := l.Queue.ReplaceSpilled(ctx, k.No, -1, stats.Spills); err != nil {
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

// end ends the replay, unless a job waits for another attempt, or is in the queue: another broker,
// which looked after the replay before, may have offered jobs that this one did not find.
func (l *loader) end(ctx context.Context, k *durable.Consumer) error {
	open, err := l.Store.OpenJobs(ctx, k.No, ident.ID{}, 1)
	if err != nil || len(open) > 0 {
		return err
	}
	stats, err := l.Queue.Stats(ctx, k.No)
	if err != nil || stats.Ready+stats.Delayed+stats.Leased > 0 {
		return err
	}
	r, err := l.Store.SetReplayState(ctx, k.No, durable.ReplayDone)
	if err != nil {
		return err
	}
	l.Log.Info("a replay is done", "consumer", l.name(k.No), "replay", r.ID(), "messages", r.Matched, "delivered", r.Delivered, "dead", r.Dead)
	return l.Catalogue.Refresh(ctx)
}
