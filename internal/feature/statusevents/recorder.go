package statusevents

import (
	"context"
	"slices"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/model/ident"
)

// A Recorder is a store whose Record also stores the events that producers want. Without such a
// producer it costs one load.
type Recorder struct {
	*durable.Store
	Catalogue *catalogue.Catalogue
}

// Record is durable.Store.Record with the events of the outcomes, in one transaction.
func (r *Recorder) Record(ctx context.Context, outcomes []durable.Outcome) error {
	wanted := r.Catalogue.StatusEvents()
	if len(wanted) == 0 {
		return r.Store.Record(ctx, outcomes)
	}
	rows := slices.Clone(outcomes)
	if err := r.identify(ctx, rows); err != nil {
		return err
	}
	for i := range rows {
		rows[i].Notices = wanted[rows[i].ProducerNo] & kindsOf(&rows[i])
	}
	return r.Store.Record(ctx, rows)
}

// kindsOf returns the events that an outcome is.
func kindsOf(o *durable.Outcome) durable.StatusKind {
	switch {
	case o.Kind == durable.OutcomeDelivered:
		return durable.StatusDelivered
	case o.Kind == durable.OutcomeRetry:
		return durable.StatusFailed
	case o.Reason.Attempted():
		return durable.StatusFailed | durable.StatusDead
	}
	return durable.StatusDead
}

// identify finds the producers of the messages of outcomes that do not know it. Outcomes of push
// attempts know it, so few are looked up, in one query for each channel.
func (r *Recorder) identify(ctx context.Context, rows []durable.Outcome) error {
	unknown := map[uint32][]ident.ID{}
	for i := range rows {
		if rows[i].ProducerNo != 0 {
			continue
		}
		if no, ok := r.channelOf(&rows[i]); ok {
			unknown[no] = append(unknown[no], rows[i].ID)
		}
	}
	for no, ids := range unknown {
		found, err := r.Store.Senders(ctx, no, ids)
		if err != nil {
			return err
		}
		senders := make(map[ident.ID]uint32, len(found))
		for i := range found {
			senders[found[i].ID] = found[i].ProducerNo
		}
		for i := range rows {
			if of, ok := r.channelOf(&rows[i]); ok && of == no && rows[i].ProducerNo == 0 {
				rows[i].ProducerNo = senders[rows[i].ID]
			}
		}
	}
	return nil
}

// channelOf returns the channel of an outcome, false for a system channel, whose messages have no
// producer.
func (r *Recorder) channelOf(o *durable.Outcome) (uint32, bool) {
	k := r.Catalogue.ConsumerByNo(o.ConsumerNo)
	if k == nil {
		return 0, false
	}
	ch := r.Catalogue.ChannelByNo(k.ChannelNo)
	return k.ChannelNo, ch != nil && !ident.Reserved(ch.ID)
}
