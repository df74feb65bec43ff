package simulation

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/ident"
)

// The exchanges of the store. All responses go back to the producer, and none of them is dropped.

// recordExchange stores the exchange of an outcome, and ends the one that the outcome is the reply
// of. Call it with mu held.
func (s *store) recordExchange(o durable.Outcome) {
	if e := o.Exchange; e != nil && !(s.flaw == responsesAreForgotten && s.flaw.strikes(e.ID)) {
		if k := (jobKey{e.ConsumerNo, e.ID}); s.exchanges[k] == nil {
			row := *e
			s.exchanges[k] = &row
		} else if e.State == durable.ResponseReceived {
			s.move(*e, durable.DeliveredReceiver)
		}
	}
	e := s.exchanges[jobKey{o.ReplyTo.ConsumerNo, o.ReplyTo.ID}]
	if e == nil || e.State != durable.ResponseReceived || s.flaw == repliesAreForgotten && s.flaw.strikes(e.ID) {
		return
	}
	e.State, e.EndedMs, e.DueMs = durable.ResponseDelivered, o.AtMs, durable.Never
	if e.KeepMs > 0 {
		e.DueMs = o.AtMs + e.KeepMs
	}
}

func (s *store) exchangesOf(consumer uint32, ids []ident.ID) (out []durable.Exchange) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range ids {
		if e := s.exchanges[jobKey{consumer, id}]; e != nil {
			out = append(out, *e)
		}
	}
	return out
}

// nextWork returns the consumer after another one that has exchanges, and when the first is due.
func (s *store) nextWork(after uint32) (consumer uint32, dueMs int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for k, e := range s.exchanges {
		switch {
		case k.consumer <= after || consumer != 0 && k.consumer > consumer:
		case k.consumer != consumer || e.DueMs < dueMs:
			consumer, dueMs = k.consumer, e.DueMs
		}
	}
	return consumer, dueMs
}

func (s *store) dueWork(consumer uint32, nowMs int64, limit int) (out []durable.Work) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for k, e := range s.exchanges {
		if k.consumer == consumer && e.DueMs <= nowMs {
			out = append(out, durable.Work{
				ExchangeHead: durable.ExchangeHead{State: e.State, GoesBack: e.GoesBack, Bytes: len(e.Body) + len(e.Headers)},
				ID:           k.id, DeadlineMs: e.DeadlineMs, DueMs: e.DueMs, Tries: e.Tries, URL: e.URL,
			})
		}
	}
	slices.SortFunc(out, func(a, b durable.Work) int { return cmp.Or(cmp.Compare(a.DueMs, b.DueMs), a.ID.Compare(b.ID)) })
	return out[:min(limit, len(out))]
}

func (s *store) delayWork(consumer uint32, state durable.ExchangeState, ids []ident.ID, dueMs int64, tries int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range ids {
		if e := s.exchanges[jobKey{consumer, id}]; e != nil && e.State == state {
			e.DueMs, e.Tries = dueMs, e.Tries+tries
		}
	}
}

// moveExchange changes what an UPDATE of durable.Store.MoveExchange does.
func (s *store) moveExchange(to durable.Exchange, from durable.ExchangeState) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.move(to, from)
}

// postExchange inserts an exchange, or moves one that awaits its response.
func (s *store) postExchange(e durable.Exchange) (posted bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := jobKey{e.ConsumerNo, e.ID}
	if s.exchanges[k] != nil {
		return s.move(e, durable.DeliveredReceiver)
	}
	s.exchanges[k] = &e
	return true
}

// move is moveExchange. Call it with mu held.
func (s *store) move(to durable.Exchange, from durable.ExchangeState) bool {
	e := s.exchanges[jobKey{to.ConsumerNo, to.ID}]
	if e == nil || e.State != from {
		return false
	}
	e.State, e.Status, e.Truncated, e.ReceivedMs, e.EndedMs = to.State, to.Status, to.Truncated, to.ReceivedMs, to.EndedMs
	e.DueMs, e.Tries, e.URL, e.Reason, e.Headers, e.Body = to.DueMs, to.Tries, to.URL, to.Reason, to.Headers, to.Body
	return true
}

// answering reports whether retention keeps a message for one of its exchanges. Call it with mu held.
func (s *store) answering(m *durable.Message, p durable.Purge) bool {
	for _, k := range p.Consumers {
		if e := s.exchanges[jobKey{k.No, m.ID}]; e != nil && !e.Over() && e.DeliveredMs >= p.DeadBeforeMs {
			return true
		}
	}
	return false
}

// unanswered finds an exchange that is not over.
func (s *store) unanswered() (durable.Exchange, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for e := range maps.Values(s.exchanges) {
		if !e.Over() {
			return *e, true
		}
	}
	return durable.Exchange{}, false
}

// ensureChannel creates a channel unless it exists.
func (s *store) ensureChannel(p durable.Put) (durable.Channel, bool) {
	s.mu.Lock()
	i := slices.IndexFunc(s.channels, func(ch durable.Channel) bool { return ch.ID == p.ID })
	s.mu.Unlock()
	if i >= 0 {
		return s.channel(uint32(i + 1)), false
	}
	return s.channel(s.putChannel(p.ID)), true
}

// ensureConsumer creates a consumer of a channel unless it exists.
func (s *store) ensureConsumer(p durable.ConsumerPut) (out durable.Consumer, created bool, err error) {
	record, err := p.Policy("")
	if err != nil {
		return out, false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.IndexFunc(s.channels, func(ch durable.Channel) bool { return ch.ID == p.ChannelID })
	if i < 0 {
		return out, false, durable.ErrNotFound
	}
	for _, k := range s.consumers {
		if k.ChannelNo == s.channels[i].No && k.ID == p.ID {
			return k, false, nil
		}
	}
	return s.addConsumer(durable.Consumer{ChannelNo: s.channels[i].No, ID: p.ID, Token: p.NewToken,
		CallbackURL: *p.CallbackURL, Type: *p.Type, Policy: record}), true, nil
}

func (t storeSeam) NextWork(ctx context.Context, after uint32) (consumerNo uint32, dueMs int64, err error) {
	type answer struct {
		consumer uint32
		dueMs    int64
	}
	a, err := read(ctx, t, "NextWork", after, func() (a answer) {
		a.consumer, a.dueMs = t.s.nextWork(after)
		return a
	})
	return a.consumer, a.dueMs, err
}

func (t storeSeam) DueWork(ctx context.Context, consumerNo uint32, nowMs int64, limit int) ([]durable.Work, error) {
	return read(ctx, t, "DueWork", consumerNo, func() []durable.Work { return t.s.dueWork(consumerNo, nowMs, limit) })
}

func (t storeSeam) DelayWork(ctx context.Context, consumerNo uint32, state durable.ExchangeState, ids []ident.ID,
	dueMs int64, tries int) error {
	return t.do(ctx, "DelayWork", consumerNo, func() { t.s.delayWork(consumerNo, state, slices.Clone(ids), dueMs, tries) })
}

// RestReplies finds a producer with a reply URL, and no retention that ends a wait.
func (t storeSeam) RestReplies(ctx context.Context, consumerNo uint32, rest []durable.Awaiting, _, _ int64) error {
	ids := make([]ident.ID, len(rest))
	for i := range rest {
		ids[i] = rest[i].ID
	}
	return t.do(ctx, "RestReplies", consumerNo, func() {
		t.s.delayWork(consumerNo, durable.ResponseReceived, ids, durable.Never, 0)
	})
}

// NextAwaited finds nothing: the producers have a reply URL, and none of them is deleted. So the calls
// below never come.
func (t storeSeam) NextAwaited(context.Context, uint32) (uint32, error)            { return 0, nil }
func (t storeSeam) WakeReplies(context.Context, uint32, int) ([]uint32, error)     { return nil, nil }
func (t storeSeam) ForgetAwaiting(context.Context, uint32, []ident.ID) error       { return nil }
func (t storeSeam) MessageByKey(context.Context, uint32, string) (ident.ID, error) { return none, nil }
func (t storeSeam) DeleteChannel(context.Context, durable.Put) (durable.Channel, error) {
	return durable.Channel{}, durable.ErrNotFound
}

// DropResponses is never called: no consumer has a responseTTL.
func (t storeSeam) DropResponses(context.Context, uint32, []ident.ID, int64) error { return nil }

func (t storeSeam) Exchanges(ctx context.Context, consumerNo uint32, ids []ident.ID) ([]durable.Exchange, error) {
	return read(ctx, t, "Exchanges", consumerNo, func() []durable.Exchange { return t.s.exchangesOf(consumerNo, ids) })
}

func (t storeSeam) MoveExchange(ctx context.Context, e durable.Exchange, from durable.ExchangeState) (bool, error) {
	return read(ctx, t, "MoveExchange", e.ConsumerNo, func() bool {
		moved := t.s.moveExchange(e, from)
		t.l.note("exchange "+e.State.String(), e.ConsumerNo, e.ID, map[bool]string{true: "moved",
			false: "was moved before"}[moved])
		return moved
	})
}

func (t storeSeam) PostExchange(ctx context.Context, e durable.Exchange) error {
	posted, err := read(ctx, t, "PostExchange", e.ConsumerNo, func() bool { return t.s.postExchange(e) })
	if err == nil && !posted {
		err = durable.ErrDuplicate
	}
	return err
}

func (t storeSeam) PutChannel(ctx context.Context, p durable.Put) (durable.Channel, bool, error) {
	type answer struct {
		ch      durable.Channel
		created bool
	}
	a, err := read(ctx, t, "PutChannel", 0, func() (a answer) {
		a.ch, a.created = t.s.ensureChannel(p)
		return a
	})
	return a.ch, a.created, err
}

func (t storeSeam) PutConsumer(ctx context.Context, p durable.ConsumerPut) (durable.Consumer, bool, error) {
	type answer struct {
		k       durable.Consumer
		created bool
		err     error
	}
	a, err := read(ctx, t, "PutConsumer", 0, func() (a answer) {
		a.k, a.created, a.err = t.s.ensureConsumer(p)
		return a
	})
	return a.k, a.created, cmp.Or(err, a.err)
}
