package simulation

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/ident"
)

// setState changes the state of a consumer as durable.Store.SetConsumerState does.
func (s *store) setState(c durable.StateChange) (durable.Consumer, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := &s.consumers[c.ConsumerNo-1]
	if c.Release {
		delete(s.holds, k.No)
	}
	if !slices.Contains(c.From, k.State) || c.SinceMs != 0 && c.SinceMs != k.StateMs {
		return *k, false
	}
	s.moveTo(k, c.To, c.Reason)
	if c.Forget {
		delete(s.failures, k.No)
	}
	return *k, true
}

// moveTo writes a state. Call it with mu held.
func (s *store) moveTo(k *durable.Consumer, to durable.ConsumerState, reason string) {
	s.version++
	k.State, k.StateReason, k.StateMs, k.Version = to, reason, max(s.nowMs(), k.StateMs+1), s.version
	delete(s.probes, k.No)
}

// countFailure adds a failure to the ring of its consumer. Call it with mu held.
func (s *store) countFailure(o durable.Outcome) {
	rule := o.Tombstone
	if rule == nil {
		return
	}
	no := cmp.Or(rule.ConsumerNo, o.ConsumerNo) // the failure of a replay is one of its consumer
	times := append(s.failures[no], o.AtMs)
	slices.Sort(times)
	oldest := times[len(times)-1] - rule.Window.Milliseconds()
	times = slices.DeleteFunc(times, func(ms int64) bool { return ms < oldest })
	times = times[max(len(times)-rule.After-1, 0):]
	s.failures[no] = times
	if k := &s.consumers[no-1]; len(times) > rule.After && k.State == durable.StateActive {
		s.moveTo(k, durable.StateDead, "too many failures")
		rule.Tripped = true
	}
}

// takeProbe gives the right to probe to one caller at a time.
func (s *store) takeProbe(consumer uint32, untilMs int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.consumers[consumer-1].State != durable.StateProbing || s.probes[consumer] >= s.nowMs() {
		return false
	}
	s.probes[consumer] = untilMs
	return true
}

func (s *store) returnProbe(consumer uint32, untilMs int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.probes[consumer] == untilMs {
		delete(s.probes, consumer)
	}
}

// backlog counts as durable.Store.Backlog does, without a limit.
func (s *store) backlog(k durable.Consumer) (b durable.Backlog) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.messages[k.ChannelNo] {
		if !concerns(m.ID, m.Audience, k) {
			continue
		}
		switch s.state(jobKey{k.No, m.ID}).Status {
		case durable.Waiting, durable.Open:
			if b.Open == 0 {
				b.Oldest = m.ID
			}
			b.Open++
		case durable.Dead:
			b.Dead++
		}
	}
	return b
}

func (t storeSeam) Backlog(ctx context.Context, k durable.Consumer, _ int) (durable.Backlog, error) {
	return read(ctx, t, "Backlog", k.No, func() durable.Backlog { return t.s.backlog(k) })
}

func (t storeSeam) SetConsumerState(ctx context.Context, c durable.StateChange) (durable.Consumer, bool, error) {
	type answer struct {
		k       durable.Consumer
		changed bool
	}
	a, err := read(ctx, t, "SetConsumerState", c.ConsumerNo, func() (a answer) {
		a.k, a.changed = t.s.setState(c)
		if a.changed {
			t.l.note("state "+a.k.State.String(), c.ConsumerNo, ident.ID{}, "")
		}
		return a
	})
	return a.k, a.changed, err
}

// SetChannelPaused pauses the intake of a channel; the guard of the insert sees it.
func (t storeSeam) SetChannelPaused(ctx context.Context, id string, paused bool) (durable.Channel, bool, error) {
	type answer struct {
		ch      durable.Channel
		changed bool
	}
	a, err := read(ctx, t, "SetChannelPaused", 0, func() (a answer) {
		t.s.mu.Lock()
		defer t.s.mu.Unlock()
		for i := range t.s.channels {
			ch := &t.s.channels[i]
			if ch.ID == id && ch.Paused != paused {
				t.s.version++
				ch.Paused, ch.Version, a.changed = paused, t.s.version, true
			}
			if ch.ID == id {
				a.ch = *ch
			}
		}
		return a
	})
	if err == nil && a.ch.No == 0 {
		err = durable.ErrNotFound
	}
	return a.ch, a.changed, err
}

// SetGroupPaused: the simulation has no groups.
func (t storeSeam) SetGroupPaused(context.Context, string, bool) (durable.Group, bool, error) {
	return durable.Group{}, false, durable.ErrNotFound
}

func (t storeSeam) TakeProbe(ctx context.Context, consumerNo uint32, untilMs int64) (bool, error) {
	return read(ctx, t, "TakeProbe", consumerNo, func() bool { return t.s.takeProbe(consumerNo, untilMs) })
}

func (t storeSeam) ReturnProbe(ctx context.Context, consumerNo uint32, untilMs int64) error {
	return t.do(ctx, "ReturnProbe", consumerNo, func() { t.s.returnProbe(consumerNo, untilMs) })
}

// Secret is the same for all brokers.
func (t storeSeam) Secret(_ context.Context, name string) ([]byte, error) {
	return []byte(name + time.UTC.String()), nil
}
