// Command grafana prints the board of Penstock for Grafana: make board writes it to penstock.json.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
)

//go:generate sh -c "go run . > penstock.json"

func main() {
	if _, err := os.Stdout.Write(render()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// A chart is one panel.
type chart struct {
	title, about, unit string
	kind               string // "": timeseries
	queries            []query
}

// A query is one expression, and the legend of its series.
type query struct{ expr, legend string }

// A row is a title and the charts below it.
type row struct {
	title  string
	charts []chart
}

// one is the only query of a chart.
func one(expr, legend string) []query { return []query{{expr, legend}} }

const (
	who  = "{{channel}} / {{consumer}}"
	pick = `{channel=~"$channel",consumer=~"$consumer"}`
)

// level is a level of consumers, which all brokers tell alike.
func level(name string) string {
	return "max by (channel, consumer) (penstock_consumer_" + name + pick + ")"
}

// rate is what all brokers count for consumers, in a second.
func rate(name string) string {
	return "sum by (channel, consumer) (rate(penstock_consumer_" + name + pick + "[$__rate_interval]))"
}

// quantile is a quantile of a histogram, by labels.
func quantile(q, histogram, labels, by string) string {
	return fmt.Sprintf("histogram_quantile(%s, sum by (%sle) (rate(%s_bucket%s[$__rate_interval])))", q, by, histogram,
		labels)
}

// render returns the JSON of the board.
func render() []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", " ")
	if err := e.Encode(board()); err != nil {
		panic(err) // it has texts and numbers
	}
	return b.Bytes()
}

type object = map[string]any

// board is the board as Grafana reads it.
func board() object {
	var panels []object
	id, y := 0, 0
	for _, r := range rows {
		id++
		panels = append(panels, object{"id": id, "type": "row", "title": r.title, "collapsed": false, "panels": []object{},
			"gridPos": object{"x": 0, "y": y, "w": columns, "h": 1}})
		y++
		for i, c := range r.charts {
			id++
			panels = append(panels, c.panel(id, i%perLine*columns/perLine, y+i/perLine*height))
		}
		y += (len(r.charts) + perLine - 1) / perLine * height
	}
	return object{
		"uid": "penstock", "title": "Penstock", "tags": []string{"penstock"}, "schemaVersion": 39, "version": 1,
		"editable": true, "refresh": "30s", "timezone": "", "time": object{"from": "now-6h", "to": "now"},
		"annotations": object{"list": []object{}}, "panels": panels,
		"templating": object{"list": []object{
			{"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus"},
			variable("channel", "label_values(penstock_consumer_state, channel)"),
			variable("consumer", `label_values(penstock_consumer_state{channel=~"$channel"}, consumer)`),
		}},
	}
}

// The grid: two panels in a line.
const columns, perLine, height = 24, 2, 8

// source is the data source that the reader picks.
var source = object{"type": "prometheus", "uid": "${datasource}"}

// variable is one that takes several values, or all.
func variable(name, values string) object {
	return object{"name": name, "label": name, "type": "query", "datasource": source, "query": values, "refresh": 2,
		"sort": 1, "multi": true, "includeAll": true, "allValue": ".*",
		"current": object{"text": "All", "value": "$__all"}}
}

// panel is the chart at a place of the grid.
func (c *chart) panel(id, x, y int) object {
	kind := c.kind
	if kind == "" {
		kind = "timeseries"
	}
	targets := make([]object, len(c.queries))
	for i, q := range c.queries {
		targets[i] = object{"refId": string(rune('A' + i)), "expr": q.expr, "legendFormat": q.legend, "datasource": source}
	}
	return object{"id": id, "type": kind, "title": c.title, "description": c.about, "datasource": source,
		"gridPos": object{"x": x, "y": y, "w": columns / perLine, "h": height}, "targets": targets,
		"fieldConfig": object{"defaults": object{"unit": c.unit, "min": 0}, "overrides": []object{}},
		"options":     object{"legend": object{"displayMode": "list", "placement": "bottom"}}}
}
