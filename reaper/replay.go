package reaper

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/tool/failpoint"
	"github.com/penstock-broker/penstock/internal/tool/guard"
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
	// replayPages bounds the pages that one replay reads in one round.
	replayPages = 20
	// replayFor bounds the time of one round. Channels have equal parts of it, of at least replayLeast.
	replayFor   = 500 * time.Millisecond
	replayLeast = 20 * time.Millisecond
	// matchBytes is what one round reads of payloads and headers for filters, matchFor how long it
	// evaluates them: a quarter of the time. Channels have equal parts of both, and so have the replays of
	// a channel.
	matchBytes = 4 << 20
	matchFor   = 50 * time.Millisecond
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
	r         *durable.Replay // as it was when the loader began; settled is its progress
	settled   ident.ID
	pages     []loadedPage
	channelNo uint32
	share     int       // of matchBytes and matchFor: one of so many
	until     time.Time // when the turn of its channel ends
}

// A replayer lets the replays of this broker go on. Only its loop uses it.
type replayer struct {
	*Reaper
	loaders map[uint32]*loader
	last    map[uint32]uint32 // channel -> the replay that had the last turn
}

func (r *Reaper) replayLoop(ctx context.Context) {
	p, history := &replayer{r, map[uint32]*loader{}, map[uint32]uint32{}}, r.history()
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
			clear(p.loaders)
		}
		replays := r.Catalogue.Replays()
		failures.round(ctx, r.Log, "a replay cannot go on; it tries again", p.round(ctx, replays))
		wait := replayIdle
		if len(replays) > 0 {
			wait = replayTick
		}
		timer.Reset(wait)
	}
}

// round lets the replays of this broker go on, a turn for each channel, however many it has. It returns
// the last error.
func (p *replayer) round(ctx context.Context, replays []*durable.Consumer) (failure error) {
	mine, channels := map[uint32]bool{}, map[uint32][]*durable.Consumer{}
	for _, k := range replays {
		if !p.Cluster.Owns(k.No) {
			continue
		}
		mine[k.No] = true
		if k.Replay.State == durable.ReplayRunning { // else what is in the queue stays there, and its lanes are held
			channels[k.ChannelNo] = append(channels[k.ChannelNo], k)
		}
	}
	filtered := p.filtered()
	for no, of := range channels {
		if err := p.turn(ctx, of, max(replayFor/time.Duration(len(channels)), replayLeast), max(len(filtered)*filtered[no],
			1)); err != nil {
			failure = err
		}
	}
	for no := range p.loaders {
		if !mine[no] {
			delete(p.loaders, no)
			p.drop(no)
		}
	}
	maps.DeleteFunc(p.last, func(no, _ uint32) bool { return channels[no] == nil })
	return failure
}

// filtered returns how many replays with a filter each channel has, as of the round before.
func (p *replayer) filtered() map[uint32]int {
	out := map[uint32]int{}
	for _, l := range p.loaders {
		if l.r.Filter != "" {
			out[l.channelNo]++
		}
	}
	return out
}

// turn lets replays of a channel go on, each once, as long as the time of the turn allows. The next turn
// goes on behind the last one. It returns the last error.
func (p *replayer) turn(ctx context.Context, replays []*durable.Consumer, within time.Duration,
	share int) (failure error) {
	slices.SortFunc(replays, func(a, b *durable.Consumer) int { return cmp.Compare(a.No, b.No) })
	channel, until := replays[0].ChannelNo, time.Now().Add(within)
	begin := max(slices.IndexFunc(replays, func(k *durable.Consumer) bool { return k.No > p.last[channel] }), 0)
	for i := range replays {
		if i > 0 && !time.Now().Before(until) {
			break
		}
		k := replays[(begin+i)%len(replays)]
		p.last[channel] = k.No
		err := guard.Do("replay", func() error {
			l := p.loaders[k.No]
			if l == nil {
				now, err := p.Store.Replay(ctx, k.No)
				if err != nil || now.State.Ended() {
					return err
				}
				l = &loader{Reaper: p.Reaper, r: &now, settled: now.Settled, channelNo: channel}
				p.restartAt(k.No, now.Settled)
				p.loaders[k.No] = l
			}
			l.share, l.until = share, until
			return l.round(ctx, k)
		})
		if err = unlessLost(err); err != nil {
			failure = err
		}
	}
	return failure
}

// restartAt makes the next scan of a replay begin at its progress.
func (r *Reaper) restartAt(no uint32, settled ident.ID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	l := &scanState{settled: settled}
	l.restart(r.Cluster.NowMs())
	r.scanStates[no] = l
}

// round settles what is over, offers what has room, and ends a replay that has nothing left.
func (l *loader) round(ctx context.Context, k *durable.Consumer) error {
	s := l.begin(k)
	if s == nil {
		return nil
	}
	if s.levels != nil { // the begin, or a loss of Redis state: what was offered is lost
		l.pages = nil
		l.save(s, func(g *scanState) { g.levels = nil })
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
	matcher, err := l.matcher()
	if err != nil {
		return err
	}
	for i := range replayPages {
		if i > 0 && !time.Now().Before(l.until) {
			break
		}
		if s.checked.Compare(through) >= 0 || l.ahead() >= min(replayAhead, max(l.Queue.Window()/2, 1)) || matcher != nil &&
			matcher.Spent() {
			break
		}
		if err := l.load(ctx, k, s, through, matcher); err != nil {
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
		if g := l.scanStates[l.r.No]; g != nil {
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
	l.Log.Info("a replay is done", "consumer", k.No, "replay", r.ID(), "messages", r.Matched, "delivered",
		r.Delivered, "dead", r.Dead)
	return l.Catalogue.Refresh(ctx)
}
