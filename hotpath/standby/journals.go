package standby

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

// Adopt takes over the journals that others have left. The broker goes on with the first of
// them as its own. Call it before the first request is served: a message with an ordering key that
// comes then is behind those that wait there.
func (s *Standby) Adopt() {
	left, err := s.o.Left()
	if err != nil {
		s.log.Warn("a journal in the data folder cannot be read", "error", err)
	}
	for _, j := range left {
		r := newDrain(s, j)
		r.left = !s.take(j)
		s.add(r)
	}
}

// Run drains the journal of this broker and those that others have left, until ctx ends. What is in a
// journal then is left for the next start.
func (s *Standby) Run(ctx context.Context) {
	var drains sync.WaitGroup
	begin := func() {
		for _, r := range s.unbegun() {
			if n := r.journal.Waiting(); n > 0 {
				s.log.Info("storing the messages of a journal", "folder", r.journal.Dir(), "messages", n)
			}
			drains.Go(func() {
				guard.Loop(ctx, "journal replay", func(ctx context.Context) { s.drainAll(ctx, r, r.left) })
			})
		}
	}
	tick := time.NewTicker(leftTick)
	defer tick.Stop()
	s.Adopt() // again, where a disk failed before
	for {
		begin()
		select {
		case <-ctx.Done():
			drains.Wait()
			s.end(context.WithoutCancel(ctx))
			return
		case j := <-s.opened:
			s.add(newDrain(s, j))
		case <-tick.C:
			s.Adopt()
		}
	}
}

func (s *Standby) add(r *drain) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, r)
}

// unbegun returns the drains that did not begin yet, and now do.
func (s *Standby) unbegun() (all []*drain) {
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

// drainAll drains a journal until ctx ends, one that was left until it is empty.
func (s *Standby) drainAll(ctx context.Context, r *drain, left bool) {
	for {
		err := r.run(ctx, left)
		if err == nil {
			break
		}
		s.log.Error("a journal cannot be replayed", "folder", r.journal.Dir(), "error", err)
		select {
		case <-ctx.Done():
			return
		case <-time.After(leftTick):
		}
	}
	if left && ctx.Err() == nil {
		s.closeDrain(r)
	}
}

// closeDrain closes a journal that is empty, or whose rest the next broker stores.
func (s *Standby) closeDrain(r *drain) {
	s.mu.Lock()
	s.all = slices.DeleteFunc(s.all, func(q *drain) bool { return q == r })
	s.mu.Unlock()
	if err := r.journal.Close(); err != nil {
		s.log.Warn("a journal did not close cleanly", "error", err)
	}
}

// end stores what it can of the journals for a moment, and closes them. What they hold
// stays on disk.
func (s *Standby) end(ctx context.Context) {
	s.mu.Lock()
	s.ended = true
	all := slices.Clone(s.all)
	select {
	case j := <-s.opened: // with its first message, a moment ago
		r := newDrain(s, j)
		all, s.all = append(all, r), append(s.all, r)
	default:
	}
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, stopDrain)
	defer cancel()
	for _, r := range all {
		if r.journal.Waiting() > 0 && !s.health.failing.Load() {
			r.once = true        // what is held stays
			_ = r.run(ctx, true) // what is left is logged
			r.journal.Move()
		}
		if state := r.journal.State(); state.Waiting+state.Held > 0 {
			s.log.Warn("stopping with messages in the journal: the next broker with this data folder stores them",
				"folder", r.journal.Dir(), "messages", state.Waiting, "held", state.Held, "bytes", state.Bytes)
		}
		s.closeDrain(r)
	}
}

// State returns what the journals hold that this broker has.
func (s *Standby) State() (total journal.State) {
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

// Drained is what became of the messages of a journal.
type Drained struct{ Stored, Refused, Lost int }

// Drain stores the messages of a journal that no broker has. It fails where the channel of a
// message is paused.
func (s *Standby) Drain(ctx context.Context, j *journal.Journal) (Drained, error) {
	r := newDrain(s, j)
	r.once = true
	err := r.run(ctx, true)
	if err == nil && ctx.Err() != nil {
		err = ctx.Err()
	}
	if err == nil && j.State().Held > 0 {
		err = problem.ErrChannelPaused
	}
	return Drained{r.stored, r.refused, r.lost}, err
}
