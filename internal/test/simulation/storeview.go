package simulation

import (
	"context"
	"slices"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/ident"
)

// What the checker sees of the store. It asks the store past the flaws and the faults of a run.

// A catalogueCopy is the catalogue as of a version.
type catalogueCopy struct {
	turn      turn
	version   int64
	channels  map[uint32]durable.Channel
	consumers map[uint32]durable.Consumer
	replays   map[uint32]durable.Replay
}

// catalogue returns the present catalogue. f must not keep its maps.
func (s *store) catalogue(f func(c *catalogueCopy)) {
	c := &s.known
	c.turn.Lock()
	defer c.turn.Unlock()
	news := must(s.Store.Changes(context.Background(), c.version))
	for _, ch := range news.Channels {
		c.channels[ch.No] = ch
	}
	for _, k := range news.Consumers {
		c.consumers[k.No] = k
	}
	for _, r := range news.Replays {
		c.replays[r.No] = r
	}
	c.version = news.Version
	f(c)
}

func (s *store) channel(no uint32) (out durable.Channel) {
	s.catalogue(func(c *catalogueCopy) { out = c.channels[no] })
	return out
}

func (s *store) channels() (out []durable.Channel) {
	s.catalogue(func(c *catalogueCopy) {
		for _, ch := range c.channels {
			out = append(out, ch)
		}
	})
	slices.SortFunc(out, func(a, b durable.Channel) int { return int(a.No) - int(b.No) })
	return out
}

// consumer returns a consumer, the zero value for the number of a replay.
func (s *store) consumer(no uint32) (out durable.Consumer) {
	s.catalogue(func(c *catalogueCopy) { out = c.consumers[no] })
	return out
}

// consumers returns all of them, in the order of their numbers.
func (s *store) consumers() (out []durable.Consumer) {
	s.catalogue(func(c *catalogueCopy) {
		for _, k := range c.consumers {
			out = append(out, k)
		}
	})
	slices.SortFunc(out, func(a, b durable.Consumer) int { return int(a.No) - int(b.No) })
	return out
}

// nextNo is the number of the next consumer or replay.
func (s *store) nextNo() (no uint32) {
	s.catalogue(func(c *catalogueCopy) {
		for k := range c.consumers {
			no = max(no, k)
		}
		for r := range c.replays {
			no = max(no, r)
		}
	})
	return no + 1
}

// replays returns all replays as they are now, in the order of their numbers.
func (s *store) replays() (out []durable.Replay) {
	s.catalogue(func(c *catalogueCopy) {
		for no := range c.replays { // the progress of a replay is no change of the catalogue
			out = append(out, must(s.Replay(context.Background(), no)))
		}
	})
	slices.SortFunc(out, func(a, b durable.Replay) int { return int(a.No) - int(b.No) })
	return out
}

// parent returns the consumer of a replay, 0 for the number of a consumer.
func (s *store) parent(no uint32) (consumer uint32) {
	s.catalogue(func(c *catalogueCopy) { consumer = c.replays[no].ConsumerNo })
	return consumer
}

// channelOf is the channel whose messages the jobs of a consumer or a replay are of.
func (s *store) channelOf(no uint32) (channel uint32) {
	s.catalogue(func(c *catalogueCopy) {
		if channel = c.replays[no].ChannelNo; channel == 0 {
			channel = c.consumers[no].ChannelNo
		}
	})
	return channel
}

// behind reports whether a consumer gets messages of the past, so that a new state of it in Redis
// begins with the past outside the window.
func (s *store) behind(consumer uint32) bool {
	return s.flaw != pastIsForgotten && s.consumer(consumer).Since != none
}

// A picture is what the database has at one moment. It is read as far as somebody looks at it.
type picture struct {
	s        *store
	messages map[uint32][]*durable.Message // by channel, in the order of their IDs
	states   map[uint32]map[ident.ID]durable.JobState
}

// look returns the picture of now. Call it, and use what it returns, with mu held.
func (s *store) look() *picture {
	var version int64
	must(0, s.raw.QueryRow(`PRAGMA data_version`).Scan(&version))
	if s.seen == nil || s.atVersion != version {
		s.seen = &picture{s: s, messages: map[uint32][]*durable.Message{},
			states: map[uint32]map[ident.ID]durable.JobState{}}
		s.atVersion = version
	}
	return s.seen
}

// of returns the messages of a channel, in the order of their IDs.
func (p *picture) of(channel uint32) []*durable.Message {
	if known, ok := p.messages[channel]; ok {
		return known
	}
	ctx := context.Background()
	var ids []ident.ID
	for _, m := range must(p.s.ListMessages(ctx, channel, none, 1<<20)) {
		ids = append(ids, m.ID)
	}
	out := []*durable.Message{}
	for part := range slices.Chunk(ids, 500) {
		for _, m := range must(p.s.Store.Messages(ctx, channel, part)) {
			out = append(out, &m)
		}
	}
	slices.SortFunc(out, func(a, b *durable.Message) int { return a.ID.Compare(b.ID) })
	p.messages[channel] = out
	return out
}

// message returns a stored message or nil.
func (p *picture) message(channel uint32, id ident.ID) *durable.Message {
	all := p.of(channel)
	if i, found := slices.BinarySearchFunc(all, id, byID); found {
		return all[i]
	}
	return nil
}

func byID(m *durable.Message, id ident.ID) int { return m.ID.Compare(id) }

// state is what is stored about the job of a message that is stored.
func (p *picture) state(k jobKey) durable.JobState {
	known, ok := p.states[k.consumer]
	if !ok {
		var ids []ident.ID
		for _, m := range p.of(p.s.channelOf(k.consumer)) {
			ids = append(ids, m.ID)
		}
		known = must(p.s.Store.JobStates(context.Background(), k.consumer, ids))
		p.states[k.consumer] = known
	}
	return known[k.id]
}

// ended counts the outcomes of a consumer or a replay.
func (p *picture) ended(no uint32) (delivered, dead int64) {
	for _, m := range p.of(p.s.channelOf(no)) {
		switch p.state(jobKey{no, m.ID}).Status {
		case durable.Delivered:
			delivered++
		case durable.Dead:
			dead++
		}
	}
	return delivered, dead
}

// before returns the message before another one in its ordering key, none for the first.
func (s *store) before(channel uint32, id ident.ID) ident.ID {
	return must(s.Store.Links(context.Background(), channel, []ident.ID{id}))[id].Prev
}

// messagesByID returns messages as they are stored.
func (s *store) messagesByID(channel uint32, ids []ident.ID) []durable.Message {
	return must(s.Store.Messages(context.Background(), channel, ids))
}

// waiting finds the schedule that is due next, nil if none waits.
func (s *store) waiting() *durable.Scheduled {
	ctx := context.Background()
	var next *durable.Scheduled
	for _, ch := range s.channels() {
		for _, m := range must(s.Schedules(ctx, ch.No, []durable.ScheduleStatus{durable.ScheduleWaiting}, nil, 1)) {
			if next == nil || m.DueMs < next.DueMs || m.DueMs == next.DueMs && m.ID.Compare(next.ID) < 0 {
				next = m
			}
		}
	}
	if next == nil {
		return nil
	}
	all := must(s.Store.ScheduledRows(ctx, []ident.ID{next.ID}))
	if len(all) == 0 { // it was sent or deleted meanwhile
		return nil
	}
	return all[0]
}

// allBulks returns the bulks of all channels.
func (s *store) allBulks() (out []*durable.Bulk) {
	for _, ch := range s.channels() {
		out = append(out, must(s.Bulks(context.Background(), ch.No, 0, none, 1000))...)
	}
	return out
}

// expanding finds a bulk that is not over.
func (s *store) expanding() (durable.Bulk, bool) {
	for _, b := range s.allBulks() {
		if !b.State.Over() {
			return *b, true
		}
	}
	return durable.Bulk{}, false
}

// exchange returns the exchange of a consumer about a message, nil if there is none.
func (s *store) exchange(k jobKey) *durable.Exchange {
	for _, e := range must(s.Store.Exchanges(context.Background(), k.consumer, []ident.ID{k.id})) {
		return &e
	}
	return nil
}

// unanswered finds an exchange that is not over.
func (s *store) unanswered() (durable.Exchange, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range s.consumers() {
		var ids []ident.ID
		for _, m := range s.look().of(k.ChannelNo) {
			ids = append(ids, m.ID)
		}
		for _, e := range must(s.Store.Exchanges(context.Background(), k.No, ids)) {
			if !e.Over() {
				return e, true
			}
		}
	}
	return durable.Exchange{}, false
}

// hasDead reports whether a consumer has a dead letter.
func (s *store) hasDead(consumer uint32) bool {
	return len(must(s.Store.DeadJobs(context.Background(), consumer, none, 1))) > 0
}

// receipt returns what became of a message of a journal.
func (s *store) receipt(id durable.ReceiptID) (r durable.Receipt, known bool) {
	r, known = must(s.Store.Receipts(context.Background(), []durable.ReceiptID{id}))[id]
	return r, known
}
