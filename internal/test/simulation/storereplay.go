package simulation

import (
	"context"
	"slices"
	"time"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/ident"
)

// The replays of the store. The number of a replay is from the sequence of consumers, so consumers
// has a place for it, which is of no channel.

// A storedReplay is a replay and when it was created.
type storedReplay struct {
	durable.Replay
	at time.Time
}

// createReplay stores a replay as durable.Store.CreateReplay does.
func (s *store) createReplay(r durable.Replay) (durable.Replay, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, other := range s.replays {
		if other.ConsumerNo == r.ConsumerNo && !other.State.Ended() {
			return other.Replay, durable.ErrReplayRunning
		}
	}
	s.version++
	r.No = uint32(len(s.consumers) + 1)
	s.consumers = append(s.consumers, durable.Consumer{No: r.No})
	r.Settled, r.CreatedMs, r.StateMs, r.Version = r.After, s.nowMs(), s.nowMs(), s.version
	s.replays[r.No] = &storedReplay{r, time.Now()}
	return r, nil
}

func (s *store) replay(no uint32) (durable.Replay, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.replays[no]; r != nil {
		return r.Replay, nil
	}
	return durable.Replay{}, durable.ErrNotFound
}

// parent returns the consumer of a replay, 0 for the number of a consumer.
func (s *store) parent(no uint32) uint32 {
	r, _ := s.replay(no)
	return r.ConsumerNo
}

func (s *store) setReplayState(no uint32, to durable.ReplayState) (durable.Replay, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.replays[no]
	switch {
	case r == nil:
		return durable.Replay{}, durable.ErrNotFound
	case r.State == to:
		return r.Replay, nil
	case r.State.Ended():
		return r.Replay, durable.ErrReplayEnded
	}
	s.version++
	if to.Ended() {
		r.Delivered, r.Dead = s.outcomesOf(no)
		if to == durable.ReplayDone {
			r.Matched, r.Bytes, r.Estimated = r.Delivered+r.Dead, r.JobBytes, false
		}
	}
	r.State, r.StateMs, r.Version = to, s.nowMs(), s.version
	return r.Replay, nil
}

// outcomesOf counts the outcomes of a replay. Call it with mu held.
func (s *store) outcomesOf(no uint32) (delivered, dead int64) {
	for k := range s.deliveries {
		if k.consumer == no {
			delivered++
		}
	}
	for k := range s.dead {
		if k.consumer == no && s.state(k).Status == durable.Dead {
			dead++
		}
	}
	return delivered, dead
}

// advanceReplay moves the progress of a replay on from the one that the caller knows.
func (s *store) advanceReplay(no uint32, from, to ident.ID, jobs, bytes int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.replays[no]
	if r == nil || r.State.Ended() || r.Settled != from && s.flaw != progressIsUnguarded {
		return false
	}
	if s.flaw == progressRunsAhead {
		to = ident.AtMillis(to.Millis() + 1000)
	}
	r.Settled, r.Jobs, r.JobBytes = to, r.Jobs+jobs, r.JobBytes+bytes
	return true
}

func (s *store) sizes(channel uint32, after, through ident.ID, limit int) (out []durable.Sized) {
	heads := s.heads(channel, -1, after, through, limit)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range heads {
		if m := s.message(channel, h.ID); m != nil {
			out = append(out, durable.Sized{Head: h, Bytes: int64(len(m.Payload))})
		}
	}
	return out
}

// replaysSince returns the replays that changed after a version. Call it with mu held.
func (s *store) replaysSince(version int64) (out []durable.Replay) {
	for _, r := range s.replays {
		if r.Version > version {
			out = append(out, r.Replay)
		}
	}
	slices.SortFunc(out, func(a, b durable.Replay) int { return int(a.No) - int(b.No) })
	return out
}

// awaited reports whether a replay has still to pass the message. Call it with mu held.
func (s *store) awaited(m *durable.Message) bool {
	for _, r := range s.replays {
		if r.ChannelNo == m.ChannelNo && !r.State.Ended() && m.ID.Compare(r.Settled) > 0 && m.ID.Compare(r.Through) <= 0 {
			return true
		}
	}
	return false
}

// channelOf is the channel whose messages the jobs of a consumer or a replay are of. Call it with mu
// held.
func (s *store) channelOf(no uint32) uint32 {
	if r := s.replays[no]; r != nil {
		return r.ChannelNo
	}
	return s.consumers[no-1].ChannelNo
}

type replayed struct {
	r   durable.Replay
	err error
}

func (t storeSeam) CreateReplay(ctx context.Context, r durable.Replay) (durable.Replay, error) {
	a, err := read(ctx, t, "CreateReplay", r.ConsumerNo, func() (a replayed) {
		if a.r, a.err = t.s.createReplay(r); a.err == nil {
			t.l.note("replay begins", r.ConsumerNo, none, a.r.ID()+" of "+r.Of.String())
		}
		return a
	})
	if err == nil {
		err = a.err
	}
	return a.r, err
}

func (t storeSeam) Replay(ctx context.Context, no uint32) (durable.Replay, error) {
	a, err := read(ctx, t, "Replay", no, func() (a replayed) {
		a.r, a.err = t.s.replay(no)
		return a
	})
	if err == nil {
		err = a.err
	}
	return a.r, err
}

func (t storeSeam) Sizes(ctx context.Context, channelNo uint32, after, through ident.ID, limit int) ([]durable.Sized,
	error) {
	return read(ctx, t, "Sizes", channelNo, func() []durable.Sized {
		t.l.w.checker.walked(t.l, channelNo, through)
		return t.s.sizes(channelNo, after, through, limit)
	})
}

func (t storeSeam) AdvanceReplay(ctx context.Context, no uint32, from, to ident.ID, jobs, bytes int64) (bool, error) {
	return read(ctx, t, "AdvanceReplay", no, func() bool {
		moved := t.s.advanceReplay(no, from, to, jobs, bytes)
		t.l.note("replay settled", no, to, map[bool]string{true: "", false: "elsewhere"}[moved])
		return moved
	})
}

func (t storeSeam) SetReplayState(ctx context.Context, no uint32, to durable.ReplayState) (durable.Replay, error) {
	a, err := read(ctx, t, "SetReplayState", no, func() (a replayed) {
		a.r, a.err = t.s.setReplayState(no, to)
		t.l.note("replay "+a.r.State.String(), no, none, "")
		return a
	})
	if err == nil {
		err = a.err
	}
	return a.r, err
}
