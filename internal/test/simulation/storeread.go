package simulation

import (
	"context"
	"slices"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/ident"
)

func (s *store) jobStates(consumer uint32, ids []ident.ID) map[ident.ID]durable.JobState {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[ident.ID]durable.JobState{}
	for _, id := range ids {
		if j := s.state(jobKey{consumer, id}); j.Status != durable.Waiting && s.flaw != statesAreHidden {
			out[id] = j
		}
	}
	return out
}

func (s *store) job(k *durable.Consumer, id ident.ID) (j durable.StoredJob) {
	j.JobState = s.jobStates(k.No, []ident.ID{id})[id]
	s.mu.Lock()
	defer s.mu.Unlock()
	if m := s.message(k.ChannelNo, id); m != nil {
		j.Stored, j.TTLMs = true, m.TTLMs
	}
	return j
}

func (s *store) messagesByID(channel uint32, ids []ident.ID) []durable.Message {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []durable.Message
	for _, id := range ids {
		if m := s.message(channel, id); m != nil {
			out = append(out, *m)
		}
	}
	if s.flaw == payloadsAreMixed {
		mix(out, s.messages[channel])
	}
	return out
}

func (s *store) list(channel uint32, from ident.ID, limit int) []durable.Message {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []durable.Message
	for _, m := range s.messages[channel] {
		if m.ID.Compare(from) >= 0 && len(out) < limit {
			head := *m
			head.Headers, head.Payload = nil, nil
			out = append(out, head)
		}
	}
	return out
}

// heads walks messages with after < ID <= through; priority -1 is all of them.
func (s *store) heads(channel uint32, priority int, after, through ident.ID, limit int) []durable.Head {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []durable.Head
	for _, m := range s.messages[channel] {
		if m.ID.Compare(after) > 0 && m.ID.Compare(through) <= 0 && len(out) < limit &&
			(priority < 0 || m.Priority == priority) {
			out = append(out, durable.Head{ID: m.ID, Audience: m.Audience, Priority: m.Priority})
		}
	}
	return out
}

func (s *store) levels(channel uint32) []int {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []int
	for _, m := range s.messages[channel] {
		if m.Priority > 0 && !slices.Contains(out, m.Priority) {
			out = append(out, m.Priority)
		}
	}
	slices.SortFunc(out, func(a, b int) int { return b - a })
	return out
}

func (s *store) allDelivered(k durable.Consumer, after, through ident.ID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	owed, delivered := 0, 0
	for _, m := range s.messages[k.ChannelNo] {
		if m.ID.Compare(after) > 0 && m.ID.Compare(through) <= 0 && concerns(m.ID, m.Audience, k) {
			owed++
		}
	}
	for d := range s.deliveries {
		if d.consumer == k.No && d.id.Compare(after) > 0 && d.id.Compare(through) <= 0 {
			delivered++
		}
	}
	return owed == delivered
}

func (s *store) latest(after uint32, limit int) []durable.Latest {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []durable.Latest
	for _, ch := range s.channels {
		if ch.No <= after || len(out) == limit {
			continue
		}
		l := durable.Latest{ChannelNo: ch.No}
		if all := s.messages[ch.No]; len(all) > 0 {
			l.ID = all[len(all)-1].ID
		}
		out = append(out, l)
	}
	return out
}

func (s *store) openJobs(consumer uint32, from ident.ID, limit int) []durable.OpenJob {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []durable.OpenJob
	for k, o := range s.open {
		if k.consumer == consumer && k.id.Compare(from) >= 0 && s.state(k).Status == durable.Open {
			out = append(out, durable.OpenJob{ID: k.id, Priority: o.Priority, Attempts: o.Attempts, NextMs: o.NextMs,
				RedrivenMs: s.redriven[k]})
		}
	}
	slices.SortFunc(out, func(a, b durable.OpenJob) int { return a.ID.Compare(b.ID) })
	return out[:min(limit, len(out))]
}

// hasten makes open jobs due that are due later.
func (s *store) hasten(consumer uint32, ids []ident.ID, nowMs int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range ids {
		if o, ok := s.open[jobKey{consumer, id}]; ok && o.NextMs > nowMs {
			o.NextMs = nowMs
			s.open[jobKey{consumer, id}] = o
		}
	}
}

func (s *store) deadJobs(consumer uint32, from ident.ID, limit int) []durable.DeadJob {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []durable.DeadJob
	for k, o := range s.dead {
		if k.consumer == consumer && k.id.Compare(from) >= 0 && s.state(k).Status == durable.Dead && !o.Forget {
			out = append(out, durable.DeadJob{ID: k.id, Priority: o.Priority, Attempts: o.Attempts, DiedMs: o.AtMs,
				StatusCode: o.StatusCode, Error: o.Error, Reason: o.Reason, Answer: o.Answer, Worker: o.Worker,
				LeasesLost: s.ended[k].lost, GivenBack: s.ended[k].givenBack, Fingerprint: o.Fingerprint()})
		}
	}
	slices.SortFunc(out, func(a, b durable.DeadJob) int { return a.ID.Compare(b.ID) })
	return out[:min(limit, len(out))]
}

func (s *store) readMarks() map[uint32]ident.ID {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[uint32]ident.ID{}
	for k, v := range s.marks {
		out[k] = v
	}
	return out
}

// saveMarks moves watermarks from the begins of stretches to their ends, and returns those that stand
// elsewhere.
func (s *store) saveMarks(seen durable.Clock, settled []durable.Settled) map[uint32]ident.ID {
	s.mu.Lock()
	defer s.mu.Unlock()
	if seen != (durable.Clock{}) && (seen.History != s.history || seen.Beat > s.beat) {
		return nil
	}
	others, marks := map[uint32]ident.ID{}, map[uint32]ident.ID{}
	for _, m := range settled {
		if at := s.marks[m.ConsumerNo]; at == m.After {
			marks[m.ConsumerNo] = m.Through
		} else if at != m.Through {
			others[m.ConsumerNo] = at
		}
	}
	if s.flaw == marksRunAhead {
		marks = ahead(marks)
	}
	for k, v := range marks {
		if v.Compare(s.marks[k]) > 0 {
			s.marks[k] = v
		}
	}
	return others
}

func (s *store) changes(after int64) durable.Changes {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := durable.Changes{Version: s.version}
	for _, p := range s.producers {
		if p.Version > after {
			c.Producers = append(c.Producers, p)
		}
	}
	for _, ch := range s.channels {
		if ch.Version > after {
			c.Channels = append(c.Channels, ch)
		}
	}
	for _, k := range s.consumers {
		if k.Version > after && k.ChannelNo > 0 {
			if s.flaw == statesAreStale {
				k.State = durable.StateActive
			}
			c.Consumers = append(c.Consumers, k)
		}
	}
	c.Replays = s.replaysSince(after)
	return c
}

// extent is what the catalogue consists of.
func (s *store) extent() durable.Extent {
	all := s.changes(0)
	e := durable.Extent{Version: all.Version}
	for _, p := range all.Producers {
		e.Producers.Add(p.Version)
	}
	for _, ch := range all.Channels {
		e.Channels.Add(ch.Version)
	}
	for _, k := range all.Consumers {
		e.Consumers.Add(k.Version)
	}
	return e
}

func (s *store) levelDelivered(k durable.Consumer, priority int, after, through ident.ID, limit int) (last ident.ID,
	all bool) {
	heads := s.heads(k.ChannelNo, priority, after, through, limit)
	last, all = through, true
	if len(heads) == limit {
		last = heads[limit-1].ID
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range heads {
		if _, over := s.deliveries[jobKey{k.No, h.ID}]; !over && concerns(h.ID, h.Audience, k) {
			all = false
		}
	}
	return last, all
}

// Tasks returns the tasks of messages.
func (t storeSeam) Tasks(ctx context.Context, channelNo uint32, ids []ident.ID) (map[ident.ID]string, error) {
	return read(ctx, t, "Tasks", channelNo, func() map[ident.ID]string {
		out := map[ident.ID]string{}
		for _, m := range t.s.messagesByID(channelNo, ids) {
			out[m.ID] = m.Task()
		}
		return out
	})
}
