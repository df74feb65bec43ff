package ui

import (
	"context"
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
	Charts  []Chart
	Slots   []slotRow
	Now     time.Time
}

// A tile is a number with its name.
type tile struct{ Name, Value, Small string }

// A slotRow is a minute of the history, as the table behind the charts has it.
type slotRow struct {
	At time.Time
	apitype.HistorySlot
}

func overviewPage(ctx context.Context, v *view) (title string, content any, err error) {
	o := v.src.Overview(ctx)
	p := &overviewView{Overview: o, Now: v.now}
	for i := range o.Trouble {
		p.Rows = append(p.Rows, rowOf(&o.Trouble[i], v.now))
	}
	p.Verdict = v.verdict(&o)
	p.Tiles = tilesOf(&o, v.now)
	if h := o.History; h != nil {
		p.Charts = []Chart{rateChart(h),
			chart("Time to deliver", " ms", h, [2][2]string{{"one", "half of the jobs"}, {"two", "99 of 100"}}, [2][]float64{
				series(h.Result, func(s *apitype.HistorySlot) float64 { return s.DeliveryP50 }),
				series(h.Result, func(s *apitype.HistorySlot) float64 { return s.DeliveryP99 })}),
		}
		p.Slots = slotsOf(h.Result)
	}
	return headline(&o), p, nil
}

// rateChart draws what was accepted and delivered a second.
func rateChart(h *apitype.HistoryRange) Chart {
	per := func(n int64) float64 { return float64(n) / minute }
	return chart("Messages per second", "/s", h, [2][2]string{{"one", "accepted"}, {"two", "delivered"}}, [2][]float64{
		series(h.Result, func(s *apitype.HistorySlot) float64 { return per(s.Accepted) }),
		series(h.Result, func(s *apitype.HistorySlot) float64 { return per(s.Delivered) })})
}

// slotsOf are the rows of the table behind a chart, the newest first.
func slotsOf(slots []apitype.HistorySlot) (rows []slotRow) {
	for i := len(slots) - 1; i >= 0; i-- {
		rows = append(rows, slotRow{slots[i].At.Time, slots[i]})
	}
	return rows
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

// tilesOf are the numbers of the first page. Rates are those of the last whole minute and the present one.
func tilesOf(o *Overview, now time.Time) (tiles []tile) {
	if h := o.History; h != nil {
		last := h.Result[max(len(h.Result)-2, 0):]
		var accepted, delivered, seconds float64
		var latest apitype.HistorySlot
		for _, s := range last {
			accepted, delivered = accepted+float64(s.Accepted), delivered+float64(s.Delivered)
			seconds += min(max(now.Sub(s.At.Time).Seconds(), 1), minute)
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
			percentiles("Delivered in", latest.DeliveryP50, latest.DeliveryP99))
	}
	if o.Counted {
		tiles = append(tiles, tile{"Jobs that wait", number(o.Waiting), "and " + number(o.InFlight) + " in flight"},
			tile{"Dead letters", number(o.Dead), ""})
	}
	return tiles
}

func decimalOf(f float64) string { return number(f) }

func percentiles(name string, half, most float64) tile {
	if half == 0 {
		return tile{name, "–", "none lately"}
	}
	return tile{name, number(half), "ms · p99 " + number(most)}
}
