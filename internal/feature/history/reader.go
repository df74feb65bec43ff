package history

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/hotpath/metrics"
	"github.com/penstock-broker/penstock/internal/model/apitype"
)

// A ReadStore has the history: the durable store.
type ReadStore interface {
	History(ctx context.Context, scope durable.HistoryScope, no uint32, step int, fromMs,
		toMs int64) ([]durable.HistoryRow, error)
	Marks(ctx context.Context, channelNo, consumerNo uint32, fromMs, toMs int64, limit int) ([]durable.HistoryMark, error)
}

// A Query is a question about a range. Without a channel it is about the whole; without a consumer about
// the channel.
type Query struct {
	Step                  Step
	Slot                  time.Duration // of the answer, a multiple of Step; 0: Step
	FromMs, ToMs          int64
	ChannelNo, ConsumerNo uint32
}

func (q Query) scope() (durable.HistoryScope, uint32) {
	switch {
	case q.ConsumerNo != 0:
		return durable.HistoryOfConsumer, q.ConsumerNo
	case q.ChannelNo != 0:
		return durable.HistoryOfChannel, q.ChannelNo
	}
	return durable.HistoryOfAll, 0
}

// A Reader answers questions: one statement for the rows, one for the marks.
type Reader struct {
	Store ReadStore
	NowMs func() int64 // the store's clock
}

// Range returns each slot of a range that is kept and has begun, also those in which nothing happened, and the
// marks in it.
func (r *Reader) Range(ctx context.Context, q Query) (apitype.HistoryRange, error) {
	now, marksTo := r.NowMs(), q.ToMs
	if marksTo >= now { // the clock of a broker that marks may be a little ahead
		marksTo = now + finest.Milliseconds()
	}
	view := apitype.HistoryRange{Step: q.Step.Name, Marks: []apitype.HistoryMark{}}
	var err error
	if view.Result, err = r.slots(ctx, q, now); err != nil {
		return view, err
	}
	marks, err := r.Store.Marks(ctx, q.ChannelNo, q.ConsumerNo, max(q.FromMs, now-marksKept.Milliseconds()), marksTo,
		marksShown)
	for _, m := range slices.Backward(marks) {
		view.Marks = append(view.Marks, apitype.HistoryMark{At: apitype.Time{Time: time.UnixMilli(m.AtMs)},
			Kind: m.Kind.String(), Text: m.Text})
	}
	return view, err
}

// Slots is Range without the marks: one statement.
func (r *Reader) Slots(ctx context.Context, q Query) ([]apitype.HistorySlot, error) {
	return r.slots(ctx, q, r.NowMs())
}

func (r *Reader) slots(ctx context.Context, q Query, now int64) ([]apitype.HistorySlot, error) {
	length := max(q.Step.Length, q.Slot).Milliseconds()
	from := max(begin(q.FromMs, length), q.Step.oldest(now))
	to := q.ToMs
	if to >= now { // the present slot has begun
		to = now + 1
	}
	scope, no := q.scope()
	slots := []apitype.HistorySlot{}
	rows, err := r.Store.History(ctx, scope, no, q.Step.seconds(), from, to)
	if err != nil {
		return slots, err
	}
	for at := from; at < to; at += length {
		var s sums
		for len(rows) > 0 && rows[0].AtMs < at+length {
			s.addRow(&rows[0])
			rows = rows[1:]
		}
		slots = append(slots, s.view(at))
	}
	return slots, nil
}

// addRow adds a row of one writer.
func (s *sums) addRow(r *durable.HistoryRow) {
	s.accepted += r.Accepted
	s.delivered += r.Delivered
	s.failed += r.Failed
	s.dead += r.Dead
	s.oldestMs = max(s.oldestMs, r.OldestMs)
	addTo(&s.acks, r.Acks)
	addTo(&s.deliveries, r.Deliveries)
}

// merge adds a row to another one of the same resource and slot.
func merge(to, from *durable.HistoryRow) {
	var s sums
	s.addRow(to)
	s.addRow(from)
	*to = row(slot{to.Step, to.AtMs}, of{to.Scope, to.No}, to.Writer, &s)
}

func (s *sums) view(atMs int64) apitype.HistorySlot {
	return apitype.HistorySlot{At: apitype.Time{Time: time.UnixMilli(atMs)}, Accepted: s.accepted,
		Delivered: s.delivered, Failed: s.failed, Dead: s.dead, OldestSeconds: float64(s.oldestMs) / 1000,
		AckP50: millis(&s.acks, 0.5), AckP99: millis(&s.acks, 0.99),
		DeliveryP50: millis(&s.deliveries, 0.5), DeliveryP99: millis(&s.deliveries, 0.99)}
}

// millis is a percentile in ms, to a hundredth.
func millis(h *metrics.Histogram, q float64) float64 {
	return math.Round(float64(h.Quantile(q).Microseconds())/10) / 100
}
