package accept

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/penstock-broker/penstock/internal/feature/journal"
	"github.com/penstock-broker/penstock/internal/model/problem"
	"github.com/penstock-broker/penstock/internal/tool/guard"
)

const (
	// leftTick is the interval at which a broker looks for journals that another one has left.
	leftTick = 30 * time.Second
	// stopDrain is how long a broker that stops stores what is in its journal. The rest stays there.
	stopDrain = 5 * time.Second
)

// AdoptJournals takes over the journals that others have left. The broker goes on with the first of
// them as its own. Call it before the first request is served: a message with an ordering key that
// comes then is behind those that wait there.
func (p *Submitter) AdoptJournals() {
	s := p.standby
	if !s.on() {
		return
	}
	left, err := s.o.Left()
	if err != nil {
		p.committer.log.Warn("a journal in the data folder cannot be read", "error", err)
	}
	for _, j := range left {
		r := newReplay(p, j)
		r.left = !s.take(j)
		s.add(r)
	}
}

// keepJournals replays the journal of this broker and those that others have left, until ctx ends.
func (p *Submitter) keepJournals(ctx context.Context) {
	s := p.standby
	var replays sync.WaitGroup
	begin := func() {
		for _, r := range s.unbegun() {
			if n := r.journal.Waiting(); n > 0 {
				p.committer.log.Info("storing the messages of a journal", "folder", r.journal.Dir(), "messages", n)
			}
			replays.Go(func() {
				guard.Loop(ctx, "journal replay", func(ctx context.Context) { p.replayAll(ctx, r, r.left) })
			})
		}
	}
	tick := time.NewTicker(leftTick)
	defer tick.Stop()
	p.AdoptJournals() // again, where a disk failed before
	for {
		begin()
		select {
		case <-ctx.Done():
			replays.Wait()
			p.endJournals(context.WithoutCancel(ctx))
			return
		case j := <-s.opened:
			s.add(newReplay(p, j))
		case <-tick.C:
			p.AdoptJournals()
		}
	}
}

func (s *standby) add(r *replay) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, r)
}

// unbegun returns the replays that did not begin yet, and now do.
func (s *standby) unbegun() (all []*replay) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.all {
		if !r.begun {
			r.begun = true
			all = append(all, r)
		}
	}
	return all
}

// replayAll replays a journal until ctx ends, one that was left until it is empty.
func (p *Submitter) replayAll(ctx context.Context, r *replay, left bool) {
	for {
		err := r.run(ctx, left)
		if err == nil {
			break
		}
		p.committer.log.Error("a journal cannot be replayed", "folder", r.journal.Dir(), "error", err)
		select {
		case <-ctx.Done():
			return
		case <-time.After(leftTick):
		}
	}
	if left && ctx.Err() == nil {
		p.closeReplay(r)
	}
}

// closeReplay closes a journal that is empty, or whose rest the next broker stores.
func (p *Submitter) closeReplay(r *replay) {
	s := p.standby
	s.mu.Lock()
	s.all = slices.DeleteFunc(s.all, func(q *replay) bool { return q == r })
	s.mu.Unlock()
	if err := r.journal.Close(); err != nil {
		p.committer.log.Warn("a journal did not close cleanly", "error", err)
	}
}

// endJournals stores what it can of the journals for a moment, and closes them. What they hold
// stays on disk.
func (p *Submitter) endJournals(ctx context.Context) {
	s := p.standby
	s.mu.Lock()
	s.ended = true
	all := slices.Clone(s.all)
	select {
	case j := <-s.opened: // with its first message, a moment ago
		r := newReplay(p, j)
		all, s.all = append(all, r), append(s.all, r)
	default:
	}
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, stopDrain)
	defer cancel()
	for _, r := range all {
		if r.journal.Waiting() > 0 && !p.committer.pulse.failing.Load() {
			r.once = true        // what is held stays
			_ = r.run(ctx, true) // what is left is logged
			r.journal.Move()
		}
		if state := r.journal.State(); state.Waiting+state.Held > 0 {
			p.committer.log.Warn("stopping with messages in the journal: the next broker with this data folder stores them",
				"folder", r.journal.Dir(), "messages", state.Waiting, "held", state.Held, "bytes", state.Bytes)
		}
		p.closeReplay(r)
	}
}

// JournalState returns what the journals hold that this broker has.
func (p *Submitter) JournalState() (total journal.State) {
	s := p.standby
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.all {
		one := r.journal.State()
		total.Waiting += one.Waiting
		total.Bytes += one.Bytes
		total.Oldest = max(total.Oldest, one.Oldest)
		total.Held += one.Held
		total.HeldBytes += one.HeldBytes
		total.Damaged += one.Damaged
	}
	return total
}

// Replayed is what became of the messages of a journal.
type Replayed struct{ Stored, Refused, Lost int }

// Replay stores the messages of a journal that no broker has. It fails where the channel of a
// message is paused.
func (p *Submitter) Replay(ctx context.Context, j *journal.Journal) (Replayed, error) {
	r := newReplay(p, j)
	r.once = true
	err := r.run(ctx, true)
	if err == nil && ctx.Err() != nil {
		err = ctx.Err()
	}
	if err == nil && j.State().Held > 0 {
		err = problem.ErrChannelPaused
	}
	return Replayed{r.stored, r.refused, r.lost}, err
}
