package front

import (
	"github.com/prometheus/client_golang/prometheus"
)

// protocols are the values of the label: those of HTTP/2, and HTTP/1.1 over TLS.
var protocols = []string{"h2", "h2c", "http/1.1"}

// counts are what a front counts.
type counts struct {
	open       *prometheus.GaugeVec
	total      *prometheus.CounterVec
	faults     prometheus.Counter
	handshakes prometheus.Counter
	reloads    *prometheus.CounterVec
}

func newCounts(o Options) *counts {
	c := &counts{
		open: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "penstock_front_connections",
			Help: "Open connections of HTTP/2 (h2, h2c) and of HTTP/1.1 over TLS (http/1.1)."}, []string{"protocol"}),
		total: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "penstock_front_connections_total",
			Help: "Connections of HTTP/2 (h2, h2c) and of HTTP/1.1 over TLS (http/1.1) that were opened."},
			[]string{"protocol"}),
		faults: prometheus.NewCounter(prometheus.CounterOpts{Name: "penstock_h2_faults_total",
			Help: "Streams and connections of HTTP/2 that were ended because the client broke a rule or a bound of it."}),
		handshakes: prometheus.NewCounter(prometheus.CounterOpts{Name: "penstock_tls_handshake_failures_total",
			Help: "TLS handshakes of clients that failed: no TLS, no certificate that is trusted, or too slow."}),
		reloads: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "penstock_tls_reloads_total",
			Help: "Changes of the certificate files that were noticed: ok, or failed, which keeps what they had before."},
			[]string{"result"}),
	}
	for _, p := range protocols {
		c.open.WithLabelValues(p)
		c.total.WithLabelValues(p)
	}
	for _, result := range []string{"ok", "failed"} {
		c.reloads.WithLabelValues(result)
	}
	if o.Registry != nil {
		o.Registry.MustRegister(c.open, c.total, c.faults, c.handshakes, c.reloads,
			prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "penstock_tls_certificate_expires_seconds",
				Help: "Seconds until the certificate of the TLS listener ends; below 0: it has; 0: there is no such listener."},
				o.Certificates.left))
	}
	return c
}

func (c *counts) opened(protocol string) {
	c.open.WithLabelValues(protocol).Inc()
	c.total.WithLabelValues(protocol).Inc()
}

func (c *counts) closed(protocol string) { c.open.WithLabelValues(protocol).Dec() }

// broken counts a fault of HTTP/2. Its name is one of net/http, which may change.
func (c *counts) broken(string) { c.faults.Inc() }
