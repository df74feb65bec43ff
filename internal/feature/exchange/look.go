package exchange

import (
	"context"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/model/policy"
)

// A Store is the part of durable.Store that tells how far exchanges are.
type Store interface {
	ExchangeHeads(ctx context.Context, consumerNo uint32, ids []ident.ID) (map[ident.ID]durable.ExchangeHead, error)
	JobStates(ctx context.Context, consumerNo uint32, ids []ident.ID) (map[ident.ID]durable.JobState, error)
	Exchanges(ctx context.Context, consumerNo uint32, ids []ident.ID) ([]durable.Exchange, error)
}

// Responders returns the consumers of a channel that have responses on, and are not deleted.
func Responders(ch *catalogue.Channel, policies *policy.Book) []*durable.Consumer {
	if ident.Reserved(ch.ID) {
		return nil
	}
	var out []*durable.Consumer
	for _, k := range ch.Consumers {
		if k != nil && !k.Deleted() && policies.Of(k.Policy).Responses != policy.ResponsesOff {
			out = append(out, k)
		}
	}
	return out
}

// A count is how many exchanges of a message there are, have a response, are over for whoever waits
// for a response, and are over.
type count struct{ all, answered, ended, over int }

// look counts the exchanges of some messages of a channel.
func look(ctx context.Context, store Store, responders []*durable.Consumer, heads []durable.Head) (map[ident.ID]*count,
	error) {
	counts := make(map[ident.ID]*count, len(heads))
	for _, h := range heads {
		counts[h.ID] = &count{}
	}
	for _, k := range responders {
		var ids []ident.ID
		for _, h := range heads {
			if k.Concerns(h) {
				ids = append(ids, h.ID)
			}
		}
		if len(ids) == 0 {
			continue
		}
		found, err := store.ExchangeHeads(ctx, k.No, ids)
		if err != nil {
			return nil, err
		}
		var none []ident.ID
		for _, id := range ids {
			c := counts[id]
			c.all++
			h, ok := found[id]
			switch {
			case !ok:
				none = append(none, id)
			case h.State == durable.ResponseReceived || h.State == durable.ResponseDelivered:
				c.answered++
				c.ended++
			case h.State == durable.ExchangeFailed:
				c.ended++
			}
			if ok && h.Over() {
				c.over++
			}
		}
		if len(none) == 0 {
			continue
		}
		over, err := without(ctx, store, k.No, none)
		if err != nil {
			return nil, err
		}
		for _, id := range over {
			counts[id].ended++
			counts[id].over++
		}
	}
	return counts, nil
}

// without returns the messages whose job is over without an exchange: they will have none.
func without(ctx context.Context, store Store, consumerNo uint32, ids []ident.ID) (over []ident.ID, err error) {
	jobs, err := store.JobStates(ctx, consumerNo, ids)
	if err != nil {
		return nil, err
	}
	var delivered []ident.ID
	for _, id := range ids {
		switch jobs[id].Status {
		case durable.Dead:
			over = append(over, id)
		case durable.Delivered:
			delivered = append(delivered, id)
		}
	}
	if len(delivered) == 0 {
		return over, nil
	}
	// The outcome may have been stored, with its exchange, after the exchanges were read.
	found, err := store.ExchangeHeads(ctx, consumerNo, delivered)
	for _, id := range delivered {
		if _, ok := found[id]; !ok {
			over = append(over, id)
		}
	}
	return over, err
}
