package main

import (
	"bytes"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/internal/feature/consumermetrics"
	"github.com/penstock-broker/penstock/internal/model/apitype"
)

// newDoor returns the page with the metrics of each consumer.
func (b *broker) newDoor() *consumermetrics.Door {
	return consumermetrics.New(consumermetrics.Options{Catalogue: b.catalogue, Book: b.book, Latest: b.sampler.Latest,
		Holds: b.plane.Holds, Presence: b.presence, Rates: b.balancer, Policies: b.policies, NowMs: b.node.NowMs})
}

// metricsPage serves the metrics in the goroutine of the request. The adaptor of fasthttp runs a
// net/http handler in another goroutine, with the RequestCtx as its context, and does not wait for
// its end.
func metricsPage(registry prometheus.Gatherer) fasthttp.RequestHandler {
	h := promhttp.HandlerFor(registry, promhttp.HandlerOpts{EnableOpenMetrics: true})
	return func(rc *fasthttp.RequestCtx) {
		// Of the headers of the request only one counts, so the answer is uncompressed text. OpenMetrics has
		// exemplars.
		header := http.Header{}
		if bytes.Contains(rc.Request.Header.Peek(fasthttp.HeaderAccept), []byte(apitype.MediaOpenMetrics)) {
			header.Set(fasthttp.HeaderAccept, apitype.MediaOpenMetrics+"; version=1.0.0")
		}
		page := metricsWriter{header: http.Header{}, status: http.StatusOK}
		h.ServeHTTP(&page, &http.Request{Method: http.MethodGet, Header: header})
		rc.SetStatusCode(page.status)
		rc.SetContentType(page.header.Get("Content-Type"))
		rc.SetBody(page.body.Bytes())
	}
}

// A metricsWriter stores an answer.
type metricsWriter struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (w *metricsWriter) Header() http.Header         { return w.header }
func (w *metricsWriter) WriteHeader(status int)      { w.status = status }
func (w *metricsWriter) Write(p []byte) (int, error) { return w.body.Write(p) }
