package api

import (
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are the counters of all routes.
type metrics struct {
	requests *prometheus.CounterVec
	duration *prometheus.HistogramVec
	panics   prometheus.Counter
	deleted  *prometheus.CounterVec
}

// routeMetrics are the counters of one route. A look-up of a counter by its labels costs
// more than the count, so each status is looked up once.
type routeMetrics struct {
	name     string
	requests *prometheus.CounterVec
	duration prometheus.Observer
	byStatus [600]atomic.Pointer[prometheus.Counter] // index: HTTP status
}

func newMetrics(r prometheus.Registerer) *metrics {
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "penstock_http_requests_total", Help: "Requests answered, by route and status.",
		}, []string{"route", "code"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "penstock_http_request_duration_seconds", Help: "Time from the end of reading a request to its answer.",
			// 0.25 ms to 8 s: an fsync is about 1 ms, the longest wait is the request timeout.
			Buckets: prometheus.ExponentialBuckets(0.00025, 2, 16),
		}, []string{"route"}),
		panics: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "penstock_http_panics_total", Help: "Requests whose handler panicked.",
		}),
		deleted: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "penstock_deleted_total", Help: "Producers, channels, consumers and dead letters that were deleted through " +
				"this broker.",
		}, []string{"kind"}),
	}
	if r != nil {
		r.MustRegister(m.requests, m.duration, m.panics, m.deleted)
	}
	return m
}

func (m *metrics) route(name string) *routeMetrics {
	return &routeMetrics{name: name, requests: m.requests, duration: m.duration.WithLabelValues(name)}
}

func (m *routeMetrics) observe(status int, took time.Duration) {
	m.duration.Observe(took.Seconds())
	if status < 0 || status >= len(m.byStatus) {
		status = 0
	}
	if c := m.byStatus[status].Load(); c != nil {
		(*c).Inc()
		return
	}
	c := m.requests.WithLabelValues(m.name, strconv.Itoa(status))
	m.byStatus[status].Store(&c)
	c.Inc()
}
