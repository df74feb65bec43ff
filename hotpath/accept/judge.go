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

// A judge decides by the filters of a channel which consumers a message leaves out. The message
// records it, so each message is judged once. It is judged before it waits for a transaction, in
// the goroutine that submits it. Only where the catalogue changed meanwhile is it judged again: the
// insert refuses the verdict of an old copy, because of the shape.
type judge struct {
	catalogue *catalogue.Catalogue
	metrics   *metrics.Metrics
	// slots bounds the concurrent evaluations, and thereby the memory of parsed payloads. Channels get
	// them in turn, so those with expensive filters hold back no others.
	slots *share.Bound
}

func newJudge(o Options) *judge {
	return &judge{catalogue: o.Catalogue, metrics: o.Metrics, slots: share.New(share.Options{Name: "filters",
		Most: 2 * int64(runtime.GOMAXPROCS(0))})}
}

// Bounds returns what producers and channels share: evaluations of filters, transactions of schedules.
func (s *Submitter) Bounds() []*share.Bound {
	return []*share.Bound{s.committer.judge.slots, s.scheduler.slots}
}

// all judges messages that are new.
func (j *judge) all(writes []write) {
	if !j.catalogue.AnyFilters() {
		return
	}
	for i := range writes {
		m := writes[i].msg
		if ch := j.catalogue.ChannelByNo(m.ChannelNo); ch != nil && ch.Filters != nil {
			j.one(ch, m)
		}
	}
}

// one sets the fields of a message that its channel decides.
func (j *judge) one(ch *catalogue.Channel, m *durable.Message) {
	m.Audience, m.Shape, m.LeftOut = ch.Audience, ch.Shape, ""
	if ch.Filters == nil {
		return
	}
	who := share.Channel(m.ChannelNo)
	_ = j.slots.Wait(context.Background(), who, 1) // evaluations are short: its turn comes
	defer j.slots.Give(who, 1)
	seen := j.catalogue.Seen(m)
	var out durable.PositionSet
	for position, f := range ch.Filters {
		if f == nil || m.Addressed != "" && !m.Addressed.Has(position) {
			continue
		}
		v := f.Decide(&seen)
		if v != filter.Match {
			out.Add(position)
		}
		if v > filter.NoMatch {
			j.metrics.FilterErrors.WithLabelValues(v.String()).Inc()
		}
	}
	m.LeftOut = out.Positions()
}
