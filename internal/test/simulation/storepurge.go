package simulation

import (
	"context"
	"slices"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/ident"
)

// Purge removes what is over, as durable.Store.Purge does.
func (t storeSeam) Purge(ctx context.Context, p durable.Purge) (durable.Purged, error) {
	return read(ctx, t, "Purge", p.ChannelNo, func() durable.Purged {
		t.l.w.checker.walked(t.l, p.ChannelNo, p.Through)
		return t.s.purge(p, func(m *durable.Message) { t.l.w.checker.removed(t.l, m) })
	})
}

func (s *store) purge(p durable.Purge, removes func(*durable.Message)) durable.Purged {
	s.mu.Lock()
	defer s.mu.Unlock()
	var page []*durable.Message
	for _, m := range s.messages[p.ChannelNo] {
		if m.ID.Compare(p.After) > 0 && m.ID.Compare(p.Through) <= 0 && len(page) < p.Limit {
			page = append(page, m)
		}
	}
	if len(page) == p.Limit {
		p.Through = page[len(page)-1].ID
	}
	kept := map[ident.ID]bool{}
	for _, m := range page {
		if !s.isOver(m, p) {
			kept[m.ID] = true
			continue
		}
		removes(m)
		s.purged = append(s.purged, m)
		delete(s.keys, channelKey{p.ChannelNo, m.Key})
		s.unchain(m)
	}
	goes := func(id ident.ID) bool {
		return id.Compare(p.After) > 0 && id.Compare(p.Through) <= 0 && !kept[id]
	}
	s.messages[p.ChannelNo] = slices.DeleteFunc(s.messages[p.ChannelNo], func(m *durable.Message) bool {
		return goes(m.ID)
	})
	for k := range s.exchanges {
		if s.channelOf(k.consumer) == p.ChannelNo && goes(k.id) {
			delete(s.exchanges, k)
		}
	}
	for _, rows := range []map[jobKey]durable.Outcome{s.deliveries, s.open, s.dead} {
		for k := range rows {
			if s.channelOf(k.consumer) == p.ChannelNo && goes(k.id) {
				delete(rows, k)
			}
		}
	}
	for k := range s.attempts {
		if s.channelOf(k.consumer) == p.ChannelNo && goes(k.id) {
			delete(s.attempts, k)
		}
	}
	return durable.Purged{Last: p.Through, Removed: len(page) - len(kept), Kept: len(kept)}
}

// isOver tells whether nothing is left to do for a message. Call it with mu held.
func (s *store) isOver(m *durable.Message, p durable.Purge) bool {
	if s.flaw == openIsPurged && s.flaw.strikes(m.ID) {
		return true
	}
	if s.awaited(m) || s.answering(m, p) {
		return false
	}
	if s.unknown(p) {
		return false
	}
	known := 0
	for _, k := range p.Consumers {
		if !concerns(m.ID, m.Audience, *k) {
			continue
		}
		if k.Position < m.Audience {
			known++
		}
		dead, died := s.dead[jobKey{k.No, m.ID}]
		if _, ok := s.deliveries[jobKey{k.No, m.ID}]; !ok && !(died && dead.AtMs < p.DeadBeforeMs) {
			return false
		}
	}
	return known == m.Audience
}

// unknown reports whether the request lacks a consumer that gets messages of the past: the real
// store then refuses it. Call it with mu held.
func (s *store) unknown(p durable.Purge) bool {
	for _, k := range s.consumers {
		if k.ChannelNo == p.ChannelNo && k.Since != none &&
			!slices.ContainsFunc(p.Consumers, func(known *durable.Consumer) bool { return known.No == k.No }) {
			return true
		}
	}
	return false
}

// removed checks that nothing is left to do for a message that is removed (I1). The
// store holds its lock.
func (c *checker) removed(l *life, m *durable.Message) {
	l.note("removed", 0, m.ID, "")
	s := c.w.store
	for _, k := range s.consumers {
		if k.ChannelNo != m.ChannelNo || !concerns(m.ID, m.Audience, k) {
			continue
		}
		if status := s.state(jobKey{k.No, m.ID}).Status; status != durable.Delivered && (status != durable.Dead ||
			c.w.plan.deadRetention == 0) {
			c.report(m.ID, "I1: broker %d removed a message, and its job for consumer %d is not over", l.no, k.No)
		}
	}
}
