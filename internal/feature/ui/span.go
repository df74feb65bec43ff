package ui

import (
	"time"

	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/internal/model/apitype"
	"github.com/penstock-broker/penstock/internal/model/problem"
)

// A Span is how far back the charts of a page go.
type Span struct {
	Name   string // in the address of the page
	Words  string // after "the last"
	Length time.Duration
	Slot   time.Duration // of a point of a chart, and a row of the table behind it
	Every  string        // a slot, after "by the"
}

var spans = [...]Span{
	{"1h", "hour", time.Hour, time.Minute, "minute"},
	{"24h", "24 hours", 24 * time.Hour, 10 * time.Minute, "ten minutes"},
	{"7d", "7 days", 7 * 24 * time.Hour, time.Hour, "hour"},
	{"30d", "30 days", 30 * 24 * time.Hour, 6 * time.Hour, "six hours"},
}

// LastHour is the span of a page whose address names none.
var LastHour = spans[0]

// span is the one that the address of the page names.
func (v *view) span() (Span, error) {
	name := v.query("over").Get("over")
	for _, s := range spans {
		if name == s.Name || name == "" {
			return s, nil
		}
	}
	return Span{}, problem.New(fasthttp.StatusBadRequest, "invalid_query", "over must be 1h, 24h, 7d or 30d.")
}

// Days reports whether the times of a span need their dates.
func (s Span) Days() bool { return s.Length > 12*time.Hour }

// written writes the time of a slot.
func (s Span) written(at time.Time) string {
	if s.Days() {
		return at.UTC().Format("2006-01-02 15:04")
	}
	return at.UTC().Format("15:04")
}

// A past is the history that a page shows.
type past struct {
	Span
	Spans  []sorting // those to choose from
	Charts []Chart
	Rows   []slotRow // the newest first
}

// A slotRow is a slot of the history, as the table behind the charts has it.
type slotRow struct {
	At   time.Time
	Text string // of At
	apitype.HistorySlot
}

// pastOf begins what a page shows of the slots of a span.
func (v *view) pastOf(s Span, slots []apitype.HistorySlot) (p past) {
	p.Span = s
	for _, other := range spans {
		p.Spans = append(p.Spans, sorting{other.Name, other.Words, string(v.rc.Path()) + "?over=" + other.Name})
	}
	for i := len(slots) - 1; i >= 0; i-- {
		at := slots[i].At.Time
		p.Rows = append(p.Rows, slotRow{at, s.written(at), slots[i]})
	}
	return p
}
