package tracing

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/penstock-broker/penstock/internal/tool/recent"
)

// closeWithin bounds the last export of a broker that stops.
const closeWithin = 2 * time.Second

// quietFor is the least time between two lines of the log about exports that fail.
const quietFor = time.Minute

// Options assemble a tracer.
type Options struct {
	Settings Settings
	Version  string
	Instance string // of this process
	Channel  func(no uint32) string
	NowMs    func() int64
	Log      *slog.Logger
}

// New returns a tracer, or nil where nothing is recorded. Nothing is asked over the network here: a
// receiver that is away is no reason not to start.
func New(o Options) (*Tracer, error) {
	if !o.Settings.On {
		return nil, nil
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { // of the SDK itself; exports report to the exporter below
		slog.Debug("OpenTelemetry", "error", withoutSecrets(err, &o.Settings))
	}))
	sender, err := otlptrace.New(context.Background(), client(&o.Settings))
	if err != nil {
		return nil, err
	}
	return newTracer(o, sender), nil
}

func newTracer(o Options, sender sdktrace.SpanExporter) *Tracer {
	s := &o.Settings
	e := &exporter{SpanExporter: sender, settings: s, log: o.Log, spans: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "penstock_trace_spans_total", Help: "Spans of traces that were exported, failed to be, or were dropped " +
			"because too many waited."}, []string{"outcome"})}
	e.exported, e.failed, e.dropped = e.spans.WithLabelValues("exported"), e.spans.WithLabelValues("failed"),
		e.spans.WithLabelValues("dropped")
	batches := sdktrace.NewBatchSpanProcessor(e, sdktrace.WithMaxQueueSize(s.Queue),
		sdktrace.WithMaxExportBatchSize(s.Batch),
		sdktrace.WithBatchTimeout(s.Delay), sdktrace.WithExportTimeout(s.Timeout))
	provider := sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.AlwaysSample()), sdktrace.WithIDGenerator(ids{}),
		sdktrace.WithResource(describe(&o)), sdktrace.WithSpanProcessor(&bounded{SpanProcessor: batches, e: e}))
	return &Tracer{provider: provider, tracer: provider.Tracer("penstock"), sampler: s.sampler, follow: s.Follow,
		failures: s.Failures, channel: o.Channel, nowMs: o.NowMs, spans: e.spans,
		received: recent.New[jobKey, trace.SpanContext](remembered), listed: recent.New[jobKey, Attempt](remembered)}
}

// client returns the client of the receiver.
func client(s *Settings) otlptrace.Client {
	options := []otlptracehttp.Option{otlptracehttp.WithEndpointURL(s.Endpoint), otlptracehttp.WithTimeout(s.Timeout),
		otlptracehttp.WithCompression(otlptracehttp.NoCompression), otlptracehttp.WithHeaders(s.Headers)}
	if s.Gzip {
		options = append(options, otlptracehttp.WithCompression(otlptracehttp.GzipCompression))
	}
	return otlptracehttp.NewClient(options...)
}

// describe returns the resource that all spans are of.
func describe(o *Options) *resource.Resource {
	of := map[string]string{"service.name": "penstock", "service.version": o.Version, "service.instance.id": o.Instance}
	for name, value := range o.Settings.Resource {
		of[name] = value
	}
	attributes := make([]attribute.KeyValue, 0, len(of)+3)
	for name, value := range of {
		if value != "" {
			attributes = append(attributes, attribute.String(name, value))
		}
	}
	attributes = append(attributes, attribute.String("telemetry.sdk.name", "opentelemetry"),
		attribute.String("telemetry.sdk.language", "go"), attribute.String("telemetry.sdk.version", otel.Version()))
	return resource.NewSchemaless(attributes...)
}

// Counted are the counters of spans.
func (t *Tracer) Counted() prometheus.Collector { return t.spans }

// Close sends what is left, for a bounded time, and ends the goroutines of the tracer.
func (t *Tracer) Close() {
	if t == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeWithin)
	defer cancel()
	_ = t.provider.Shutdown(ctx)
}

// A bounded processor drops what has no room in the queue behind it, and counts it: the queue itself
// would drop it in silence.
type bounded struct {
	sdktrace.SpanProcessor
	e *exporter
}

func (b *bounded) OnEnd(s sdktrace.ReadOnlySpan) {
	if b.e.waiting.Add(1) > int64(b.e.settings.Queue) {
		b.e.waiting.Add(-1)
		b.e.dropped.Inc()
		return
	}
	b.SpanProcessor.OnEnd(s)
}

// An exporter counts what it sends, and says in the log when it cannot.
type exporter struct {
	sdktrace.SpanExporter
	settings                  *Settings
	log                       *slog.Logger
	spans                     *prometheus.CounterVec
	exported, failed, dropped prometheus.Counter
	waiting                   atomic.Int64 // spans that ended and are not exported
	silent                    time.Time    // until then no line is logged; of the goroutine that exports
}

func (e *exporter) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	err := e.SpanExporter.ExportSpans(ctx, spans)
	e.waiting.Add(-int64(len(spans)))
	if err == nil {
		e.exported.Add(float64(len(spans)))
		return nil
	}
	e.failed.Add(float64(len(spans)))
	if now := time.Now(); now.After(e.silent) {
		e.silent = now.Add(quietFor)
		e.log.Warn("spans cannot be exported and are lost; the next line about it comes in a minute at the earliest",
			"endpoint", e.settings.Endpoint, "spans", len(spans), "error", withoutSecrets(err, e.settings))
	}
	return nil
}

// mostError bounds the text of an error, which may have an answer of the receiver.
const mostError = 300

// withoutSecrets returns the text of an error without the values of the headers.
func withoutSecrets(err error, s *Settings) string {
	text := err.Error()
	if errors.Is(err, context.DeadlineExceeded) {
		text = "the receiver has not answered in time"
	}
	for _, value := range s.Headers {
		if value != "" {
			text = strings.ReplaceAll(text, value, "***")
		}
	}
	return strings.ToValidUTF8(text[:min(len(text), mostError)], "")
}
