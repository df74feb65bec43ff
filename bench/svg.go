package bench

import (
	"fmt"
	"html"
	"math"
	"strings"
)

// A curve is one line of a plot.
type curve struct {
	name string
	x, y []float64
}

// A plot is drawn as SVG inside the page, which loads no other files.
type plot struct {
	title, xName, yName string
	curves              []curve
	xTicks              []tick // nil: chosen
}

// A tick is a label of an axis.
type tick struct {
	at   float64
	text string
}

// Size of a plot in SVG units, and the margins around the axes.
const (
	plotWidth, plotHeight            = 900.0, 300.0
	leftRoom, rightRoom              = 70.0, 20.0
	topRoom, bottomRoom              = 34.0, 46.0
	innerWidth, innerHeight          = plotWidth - leftRoom - rightRoom, plotHeight - topRoom - bottomRoom
	legendStep, tickGap, labelOffset = 170.0, 6.0, 18.0
)

var palette = []string{"#1f6feb", "#d1495b", "#2e8b57", "#b8860b", "#7b4fb5", "#008b8b"}

// svg draws the plot. Values that are not finite are left out.
func (p *plot) svg() string {
	var b strings.Builder
	fmt.Fprintf(&b, `<svg viewBox="0 0 %g %g" role="img" aria-label="%s">`, plotWidth, plotHeight,
		html.EscapeString(p.title))
	fmt.Fprintf(&b, `<text x="%g" y="18" class="t">%s</text>`, leftRoom, html.EscapeString(p.title))
	xMin, xMax, yMax := p.extent()
	x := func(v float64) float64 { return leftRoom + (v-xMin)/(xMax-xMin)*innerWidth }
	y := func(v float64) float64 { return topRoom + innerHeight - v/yMax*innerHeight }
	ticks := p.xTicks
	if ticks == nil {
		ticks = niceTicks(xMin, xMax)
	}
	for _, t := range ticks {
		if t.at < xMin || t.at > xMax {
			continue
		}
		fmt.Fprintf(&b, `<line x1="%.1f" y1="%g" x2="%.1f" y2="%g" class="g"/><text x="%.1f" y="%g" class="m">%s</text>`,
			x(t.at), topRoom, x(t.at), topRoom+innerHeight, x(t.at), topRoom+innerHeight+labelOffset, html.EscapeString(t.text))
	}
	for _, t := range niceTicks(0, yMax) {
		fmt.Fprintf(&b, `<line x1="%g" y1="%.1f" x2="%g" y2="%.1f" class="g"/><text x="%g" y="%.1f" class="e">%s</text>`,
			leftRoom, y(t.at), leftRoom+innerWidth, y(t.at), leftRoom-tickGap, y(t.at)+4, html.EscapeString(t.text))
	}
	fmt.Fprintf(&b, `<text x="%g" y="%g" class="m">%s</text>`, leftRoom+innerWidth/2, plotHeight-tickGap,
		html.EscapeString(p.xName))
	fmt.Fprintf(&b, `<text x="14" y="%g" class="m" transform="rotate(-90 14 %g)">%s</text>`, topRoom+innerHeight/2,
		topRoom+innerHeight/2, html.EscapeString(p.yName))
	for i, c := range p.curves {
		colour := palette[i%len(palette)]
		var points []string
		for j := range c.x {
			if finite(c.x[j]) && finite(c.y[j]) {
				points = append(points, fmt.Sprintf("%.1f,%.1f", x(c.x[j]), y(c.y[j])))
			}
		}
		fmt.Fprintf(&b, `<polyline fill="none" stroke="%s" stroke-width="1.8" points="%s"/>`, colour,
			strings.Join(points, " "))
		at := leftRoom + innerWidth - legendStep*float64(min(len(p.curves), 4)-i%4)
		fmt.Fprintf(&b, `<rect x="%.1f" y="%d" width="12" height="3" fill="%s"/><text x="%.1f" y="%d" class="l">%s</text>`,
			at, 12+12*(i/4), colour, at+16, 17+12*(i/4), html.EscapeString(c.name))
	}
	b.WriteString(`</svg>`)
	return b.String()
}

func finite(f float64) bool { return !math.IsNaN(f) && !math.IsInf(f, 0) }

// extent returns the ranges of the axes, never empty ones.
func (p *plot) extent() (xMin, xMax, yMax float64) {
	xMin, xMax = math.Inf(1), math.Inf(-1)
	for _, c := range p.curves {
		for i := range c.x {
			if finite(c.x[i]) && finite(c.y[i]) {
				xMin, xMax, yMax = min(xMin, c.x[i]), max(xMax, c.x[i]), max(yMax, c.y[i])
			}
		}
	}
	if !finite(xMin) {
		xMin, xMax = 0, 1
	}
	if xMax <= xMin {
		xMax = xMin + 1
	}
	if yMax <= 0 {
		yMax = 1
	}
	return xMin, xMax, yMax * 1.05
}

// niceTicks returns about six round numbers of a range.
func niceTicks(low, high float64) (out []tick) {
	raw := (high - low) / 6
	step := math.Pow(10, math.Floor(math.Log10(raw)))
	for _, f := range []float64{1, 2, 5, 10} {
		if step*f >= raw {
			step *= f
			break
		}
	}
	for v := math.Ceil(low/step) * step; v <= high && len(out) < 20; v += step {
		out = append(out, tick{v, short(v)})
	}
	return out
}

// short writes a number for an axis.
func short(v float64) string {
	switch {
	case math.Abs(v) >= 1e6:
		return fmt.Sprintf("%.4gM", v/1e6)
	case math.Abs(v) >= 1e4:
		return fmt.Sprintf("%.4gk", v/1e3)
	default:
		return fmt.Sprintf("%.4g", v)
	}
}
