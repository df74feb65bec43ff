package ui

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/penstock-broker/penstock/internal/model/apitype"
)

// An overviewView is what the first page shows.
type overviewView struct {
	Overview
	Verdict []string // sentences
	Tiles   []tile
	Rows    []consumerRow
	Past    past
	Now     time.Time
}

// A tile is a number with its name.
type tile struct{ Name, Value, Small string }

func overviewPage(ctx context.Context, v *view) (title string, content any, err error) {
	span, err := v.span()
	if err != nil {
		return "", nil, err
	}
	o := v.src.Overview(ctx, span)
	p := &overviewView{Overview: o, Now: v.now}
	for i := range o.Trouble {
		p.Rows = append(p.Rows, rowOf(&o.Trouble[i], v.now))
	}
	p.Verdict = v.verdict(&o)
	p.Tiles = tilesOf(&o, span, v.now)
	if h := o.History; h != nil {
		p.Past = v.pastOf(span, h.Result)
		p.Past.Charts = []Chart{rateChart(span, h), chart("Time to deliver", " ms", span, h,
			[2][2]string{{"one", "half of the jobs"}, {"two", "99 of 100"}}, [2][]float64{
				series(h.Result, func(s *apitype.HistorySlot) float64 { return s.DeliveryP50 }),
				series(h.Result, func(s *apitype.HistorySlot) float64 { return s.DeliveryP99 })}),
		}
	}
	return headline(&o), p, nil
}

// rateChart draws what was accepted and delivered a second.
func rateChart(span Span, h *apitype.HistoryRange) Chart {
	per := func(n int64) float64 { return float64(n) / span.Slot.Seconds() }
	names := [2][2]string{{"one", "accepted"}, {"two", "delivered"}}
	return chart("Messages per second", "/s", span, h, names, [2][]float64{
		series(h.Result, func(s *apitype.HistorySlot) float64 { return per(s.Accepted) }),
		series(h.Result, func(s *apitype.HistorySlot) float64 { return per(s.Delivered) })})
}

// headline says in one sentence how the broker is doing.
func headline(o *Overview) string {
	switch {
	case o.StoreError != "":
		return "The store does not answer"
	case o.QueueError != "":
		return "Redis does not answer"
	case o.Troubled == 1:
		return "One consumer needs attention"
	case o.Troubled > 1:
		return spelled(o.Troubled) + " consumers need attention"
	case !o.Counted:
		return "The jobs are being counted"
	case o.Consumers == 0:
		return "There is no consumer yet"
	}
	return "All is well"
}

// verdict says what the headline leaves out.
func (v *view) verdict(o *Overview) (says []string) {
	switch {
	case o.StoreError != "":
		says = append(says, "No message is accepted before it does, except where the channel allows the journal: "+
			o.StoreError)
	case o.QueueError != "":
		says = append(says, "Messages are accepted and stored; they are delivered when it is back.")
	default:
		says = append(says, "Messages are accepted.")
	}
	if o.Warning != "" {
		says = append(says, strings.TrimSuffix(o.Warning, ".")+".")
	}
	switch {
	case !o.Counted:
		says = append(says, "A broker counts the jobs of all consumers each ten seconds.")
	case o.Waiting == 0:
		says = append(says, "No job waits.")
	}
	return says
}

// tilesOf are the numbers of the first page. Rates are those of the last whole minute and the present one; with
// more than an hour the numbers are those of the whole span.
func tilesOf(o *Overview, span Span, now time.Time) (tiles []tile) {
	if h := o.History; h != nil && span.Days() {
		var all apitype.HistorySlot
		for _, s := range h.Result {
			all.Accepted, all.Delivered, all.Failed = all.Accepted+s.Accepted, all.Delivered+s.Delivered, all.Failed+s.Failed
		}
		in := "in " + span.Words
		tiles = append(tiles, tile{"Accepted", number(all.Accepted), in}, tile{"Delivered", number(all.Delivered), in},
			tile{"Attempts that failed", number(all.Failed), in})
	} else if h != nil {
		last := h.Result[max(len(h.Result)-2, 0):]
		var accepted, delivered, seconds float64
		var latest apitype.HistorySlot
		for _, s := range last {
			accepted, delivered = accepted+float64(s.Accepted), delivered+float64(s.Delivered)
			seconds += min(max(now.Sub(s.At.Time).Seconds(), 1), span.Slot.Seconds())
			if s.AckP50 > 0 {
				latest.AckP50, latest.AckP99 = s.AckP50, s.AckP99
			}
			if s.DeliveryP50 > 0 {
				latest.DeliveryP50, latest.DeliveryP99 = s.DeliveryP50, s.DeliveryP99
			}
		}
		seconds = max(seconds, 1)
		tiles = append(tiles, tile{"Accepted", decimalOf(accepted / seconds), "/s"},
			tile{"Delivered", decimalOf(delivered / seconds), "/s"},
			percentiles("Acknowledged in", latest.AckP50, latest.AckP99),
			percentiles("Delivered in", latest.DeliveryP50, latest.DeliveryP99), answers(o.Answers))
	}
	if o.Counted {
		tiles = append(tiles, tile{"Jobs that wait", number(o.Waiting), "and " + number(o.InFlight) + " in flight"},
			tile{"Dead letters", number(o.Dead), ""})
	}
	return tiles
}

func decimalOf(f float64) string { return number(f) }

// answers are the shares of the answers to publishes.
func answers(of [3]float64) tile {
	t := tile{"Publishes answered", "–", "none lately"}
	all := of[0] + of[1] + of[2]
	if all <= 0 {
		return t
	}
	share := func(n float64) string {
		if n > 0 && n < all/10_000 {
			return "under 0.01 %"
		}
		return strings.TrimSuffix(strings.TrimRight(strconv.FormatFloat(100*n/all, 'f', 2, 64), "0"), ".") + " %"
	}
	t.Value, t.Small = share(of[0]), "201 · "+share(of[1])+" 202 · "+share(of[2])+" 503"
	return t
}

func percentiles(name string, half, most float64) tile {
	if half == 0 {
		return tile{name, "–", "none lately"}
	}
	return tile{name, number(half), "ms · p99\u00a0" + number(most)}
}
