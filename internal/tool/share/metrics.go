package share

import "github.com/prometheus/client_golang/prometheus"

var (
	takenDesc = prometheus.NewDesc("penstock_share_held", "What is held of a bound that users share, bytes or places.",
		[]string{"bound"}, nil)
	mostDesc = prometheus.NewDesc("penstock_share_most", "The size of such a bound, without its reserve.",
		[]string{"bound"}, nil)
	largestDesc = prometheus.NewDesc("penstock_share_largest", "What the key that holds most has of it.",
		[]string{"bound"}, nil)
	refusedDesc = prometheus.NewDesc("penstock_share_refused_total", "Takes that were more than the share of their key.",
		[]string{"bound"}, nil)
	endedDesc = prometheus.NewDesc("penstock_share_ended_total", "Requests, connections and exchanges that were ended "+
		"under pressure.", []string{"bound"}, nil)
)

// A Collector shows bounds to Prometheus.
type Collector []*Bound

// Describe is part of prometheus.Collector.
func (Collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{takenDesc, mostDesc, largestDesc, refusedDesc, endedDesc} {
		ch <- d
	}
}

// Collect is part of prometheus.Collector.
func (c Collector) Collect(ch chan<- prometheus.Metric) {
	for _, b := range c {
		gauge := func(d *prometheus.Desc, kind prometheus.ValueType, v int64) {
			ch <- prometheus.MustNewConstMetric(d, kind, float64(v), b.o.Name)
		}
		gauge(takenDesc, prometheus.GaugeValue, b.Taken())
		gauge(mostDesc, prometheus.GaugeValue, b.o.Most)
		gauge(largestDesc, prometheus.GaugeValue, b.largest())
		gauge(refusedDesc, prometheus.CounterValue, b.refused.Load())
		gauge(endedDesc, prometheus.CounterValue, b.ended.Load())
	}
}

// largest returns what the key that holds most has.
func (b *Bound) largest() (most int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, a := range b.accounts {
		most = max(most, a.main+a.reserved)
	}
	return most
}
