package ui

import (
	"fmt"
	"strings"
	"time"

	"github.com/penstock-broker/penstock/internal/model/apitype"
)

// The size of a chart and of a sparkline, in units of their SVG.
const (
	chartWidth, chartHeight = 600.0, 120.0
	sparkWidth, sparkHeight = 120.0, 22.0
)

// A Chart is lines over a span, drawn by the server.
type Chart struct {
	Title, Label  string // Label says in a sentence what there is to see
	Width, Height float64
	Lines         []Line
	Top           string // the value at the upper edge
	From, To      time.Time
	Begin, End    string // From and To, written
	Marks         []ChartMark
}

// A Line is one line of a chart, as the path of an SVG.
type Line struct{ Class, Name, Path string }

// A ChartMark is a time at which something happened.
type ChartMark struct {
	X    string
	Text string
}

// path returns the path of values from left to right under a highest value.
func path(values []float64, top, width, height float64) string {
	if len(values) == 0 {
		return ""
	}
	step := width
	if len(values) > 1 {
		step = width / float64(len(values)-1)
	}
	var b strings.Builder
	for i, v := range values {
		command := "L"
		if i == 0 {
			command = "M"
		}
		y := height - 1
		if top > 0 {
			y = height - 1 - v/top*(height-3)
		}
		fmt.Fprintf(&b, "%s%.1f %.1f", command, float64(i)*step, y)
	}
	if len(values) == 1 {
		fmt.Fprintf(&b, "L%.1f %.1f", width, height-1)
	}
	return b.String()
}

// series takes one number of each slot.
func series(slots []apitype.HistorySlot, of func(*apitype.HistorySlot) float64) []float64 {
	out := make([]float64, len(slots))
	for i := range slots {
		out[i] = of(&slots[i])
	}
	return out
}

// highest is the highest of all values.
func highest(lists ...[]float64) (top float64) {
	for _, list := range lists {
		for _, v := range list {
			top = max(top, v)
		}
	}
	return top
}

// chart draws lines, named in order, over the slots of a span. lines are class, name pairs.
func chart(title, unit string, span Span, h *apitype.HistoryRange, lines [2][2]string, values [2][]float64) Chart {
	top := highest(values[0], values[1])
	c := Chart{Title: title, Width: chartWidth, Height: chartHeight, Top: number(top) + unit}
	for i, l := range lines {
		c.Lines = append(c.Lines, Line{l[0], l[1], path(values[i], top, chartWidth, chartHeight)})
	}
	c.Label = fmt.Sprintf("%s over the last %s: %s up to %s%s, %s up to %s%s.", title, span.Words, lines[0][1],
		number(highest(values[0])), unit, lines[1][1], number(highest(values[1])), unit)
	if n := len(h.Result); n > 0 {
		c.From, c.To = h.Result[0].At.Time, h.Result[n-1].At.Time
		c.Begin, c.End = span.written(c.From), span.written(c.To)
	}
	seconds := c.To.Sub(c.From).Seconds()
	for _, m := range h.Marks {
		if at := m.At.Sub(c.From).Seconds(); seconds > 0 && at >= 0 && at <= seconds && len(c.Marks) < mostMarks {
			c.Marks = append(c.Marks, ChartMark{fmt.Sprintf("%.1f", at/seconds*chartWidth), cut(m.Text, mostText)})
		}
	}
	return c
}

// mostMarks is the most marks of a chart, and of the list below it.
const mostMarks = 20

// spark is a line without axes.
type spark struct{ Path, Failed, Label string }

// sparkOf draws the deliveries and the failures of a span.
func sparkOf(span Span, slots []apitype.HistorySlot) spark {
	delivered := series(slots, func(s *apitype.HistorySlot) float64 { return float64(s.Delivered) })
	failed := series(slots, func(s *apitype.HistorySlot) float64 { return float64(s.Failed + s.Dead) })
	top := highest(delivered, failed)
	s := spark{Path: path(delivered, top, sparkWidth, sparkHeight)}
	done, bad := sum(delivered), sum(failed)
	if bad > 0 {
		s.Failed = path(failed, top, sparkWidth, sparkHeight)
	}
	s.Label = fmt.Sprintf("In the last %s %s were delivered and %s failed.", span.Words, plural(int(done), "job"),
		plural(int(bad), "attempt"))
	return s
}

func sum(values []float64) (total float64) {
	for _, v := range values {
		total += v
	}
	return total
}
