package simulation

import (
	"context"
	"slices"
	"time"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/test/queuemodel"
	"github.com/penstock-broker/penstock/redisq"
)

// A messageKey is a message of a channel.
type messageKey struct {
	channel uint32
	id      ident.ID
}

// chain puts a new message at the end of its ordering key. Call it with mu held.
func (s *store) chain(m *durable.Message) {
	if !m.Keyed() {
		return
	}
	key := channelKey{m.ChannelNo, string(m.OrderingKey())}
	s.links[messageKey{m.ChannelNo, m.ID}] = s.chains[key]
	s.chains[key] = m.ID
}

// unchain removes a message from its ordering key. Call it with mu held.
func (s *store) unchain(m *durable.Message) {
	delete(s.links, messageKey{m.ChannelNo, m.ID})
	if key := (channelKey{m.ChannelNo, string(m.OrderingKey())}); m.Keyed() && s.chains[key] == m.ID {
		delete(s.chains, key)
	}
}

func (s *store) linksOf(channel uint32, ids []ident.ID) map[ident.ID]durable.Link {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[ident.ID]durable.Link{}
	for _, id := range ids {
		prev, keyed := s.links[messageKey{channel, id}]
		if !keyed || s.flaw == chainIsForgotten {
			continue
		}
		l := durable.Link{Prev: prev, Audience: -1}
		if m := s.message(channel, prev); m != nil {
			l.Audience = m.Audience
		}
		out[id] = l
	}
	return out
}

// successors returns the messages after the given ones, in the order of their IDs.
func (s *store) successors(channel uint32, ids []ident.ID) []durable.Head {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []durable.Head
	for _, m := range s.messages[channel] {
		if prev, keyed := s.links[messageKey{channel, m.ID}]; keyed && slices.Contains(ids, prev) {
			out = append(out, durable.Head{ID: m.ID, Audience: m.Audience, Priority: m.Priority})
		}
	}
	return out
}

func (t storeSeam) Links(ctx context.Context, channelNo uint32, ids []ident.ID) (map[ident.ID]durable.Link, error) {
	return read(ctx, t, "Links", channelNo, func() map[ident.ID]durable.Link { return t.s.linksOf(channelNo, ids) })
}

func (t storeSeam) Successors(ctx context.Context, channelNo uint32, ids []ident.ID) ([]durable.Head, error) {
	return read(ctx, t, "Successors", channelNo, func() []durable.Head { return t.s.successors(channelNo, ids) })
}

func (q *queueSeam) Park(ctx context.Context, consumer uint32, leases []redisq.Lease, delays []time.Duration) ([]bool,
	error) {
	var out []bool
	err := q.run(ctx, "Park", consumer, func(k *queuemodel.Consumer, now int64) {
		result := k.Park(now, q.window, leases, delays)
		q.l.w.checker.ended(q.l, "parked", consumer, leases, result)
		out = result
	})
	if err != nil {
		return make([]bool, len(leases)), err
	}
	return out, nil
}

func (q *queueSeam) Hasten(ctx context.Context, consumer uint32, ids []ident.ID) (ready int, unknown []ident.ID,
	err error) {
	ids = slices.Clone(ids)
	if len(ids) == 0 {
		return 0, nil, nil
	}
	var n int
	var missing []ident.ID
	if err := q.run(ctx, "Hasten", consumer, func(k *queuemodel.Consumer, now int64) {
		n, missing = k.Hasten(now, ids)
	}); err != nil {
		return 0, nil, err // the script may still run
	}
	return n, missing, nil
}

func (q *queueSeam) Unpark(ctx context.Context, consumer uint32, jobs []redisq.Job) (int, error) {
	jobs = slices.Clone(jobs)
	ready := 0
	if err := q.run(ctx, "Unpark", consumer, func(k *queuemodel.Consumer, now int64) {
		ready = k.Unpark(now, jobs)
	}); err != nil {
		return 0, err // the script may still run
	}
	return ready, nil
}
