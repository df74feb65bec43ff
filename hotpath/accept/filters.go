package accept

import (
	"context"
	"runtime"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/hotpath/metrics"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/model/filter"
	"github.com/penstock-broker/penstock/internal/tool/share"
)

// filters decide by the filters of a channel which consumers a message leaves out. The message
// records it, so each message is filtered once. It is filtered before it waits for a transaction, in
// the goroutine that submits it. Only where the catalogue changed meanwhile is it filtered again: the
// insert refuses the verdict of an old copy, because of the shape.
type filters struct {
	catalogue *catalogue.Catalogue
	metrics   *metrics.Metrics
	// slots bounds the concurrent evaluations, and thereby the memory of parsed payloads. Channels get
	// them in turn, so those with expensive filters hold back no others.
	slots *share.Bound
}

func newFilters(o Options) *filters {
	return &filters{catalogue: o.Catalogue, metrics: o.Metrics, slots: share.New(share.Options{Name: "filters",
		Most: 2 * int64(runtime.GOMAXPROCS(0))})}
}

// Bounds returns what producers and channels share: evaluations of filters, transactions of schedules.
func (s *Submitter) Bounds() []*share.Bound {
	return []*share.Bound{s.committer.filters.slots, s.scheduler.slots}
}

// all filters messages that are new.
func (f *filters) all(writes []write) {
	if !f.catalogue.AnyFilters() {
		return
	}
	for i := range writes {
		m := writes[i].msg
		if ch := f.catalogue.ChannelByNo(m.ChannelNo); ch != nil && ch.Filters != nil {
			f.one(ch, m)
		}
	}
}

// one sets the fields of a message that its channel decides.
func (f *filters) one(ch *catalogue.Channel, m *durable.Message) {
	m.Audience, m.Shape, m.LeftOut = ch.Audience, ch.Shape, ""
	if ch.Filters == nil {
		return
	}
	who := share.Channel(m.ChannelNo)
	_ = f.slots.Wait(context.Background(), who, 1) // evaluations are short: its turn comes
	defer f.slots.Give(who, 1)
	seen := f.catalogue.Seen(m)
	var out durable.PositionSet
	for position, rule := range ch.Filters {
		if rule == nil || m.Addressed != "" && !m.Addressed.Has(position) {
			continue
		}
		v := rule.Decide(&seen)
		if v != filter.Match {
			out.Add(position)
		}
		if v > filter.NoMatch {
			f.metrics.FilterErrors.WithLabelValues(v.String()).Inc()
		}
	}
	m.LeftOut = out.Positions()
}
