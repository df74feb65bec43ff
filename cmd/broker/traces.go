package main

import (
	"context"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/penstock-broker/penstock/api"
	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/feature/tracing"
)

// checkTraces checks the settings of traces, and reads the variables OTEL_*.
func (c *config) checkTraces(f *faults) {
	if d := c.TraceFollow; d < 0 || d > 7*24*time.Hour {
		f.add("BROKER_TRACE_FOLLOW", "must be from 0s to 168h, not %v", d)
	}
	if c.TraceURL != "" {
		u, err := url.Parse(strings.ReplaceAll(c.TraceURL, api.TracePlace, strings.Repeat("0", 32)))
		switch {
		case !strings.Contains(c.TraceURL, api.TracePlace):
			f.add("BROKER_TRACE_URL", "must contain %s, where the ID of the trace goes, like https://traces.example/trace/%s",
				api.TracePlace, api.TracePlace)
		case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil:
			f.add("BROKER_TRACE_URL", "must be an absolute http or https URL without a user name")
		}
	}
	settings, wrong, ignored := tracing.Read(c.otel)
	for _, p := range wrong {
		f.add(p.Name, "%s", p.Text)
	}
	for _, p := range ignored {
		c.passedOver = append(c.passedOver, p.Name+" "+p.Text)
	}
	if c.tracing = settings; settings.On {
		c.tracing.Follow, c.tracing.Failures = c.TraceFollow, c.TraceFailures
	}
}

// openTracer makes the tracer, nil where nothing is traced.
func (b *broker) openTracer() {
	host, _ := os.Hostname()
	tracer, err := tracing.New(tracing.Options{
		Settings: b.cfg.tracing, Version: version, Instance: nodeName(host, os.Getpid(), b.cfg), Channel: b.channelID,
		NowMs: b.node.NowMs, Log: b.log,
	})
	if err != nil { // the settings are checked, so it is something in the environment
		b.log.Error("traces are off: the exporter cannot be made", "error", err)
	}
	if b.tracer = tracer; tracer != nil {
		b.log.Info("traces are on", "endpoint", b.cfg.tracing.Endpoint, "follow", b.cfg.TraceFollow.String(), "failures",
			b.cfg.TraceFailures)
	}
}

// channelID returns the ID of a channel.
func (b *broker) channelID(no uint32) string {
	if ch := b.catalogue.ChannelByNo(no); ch != nil {
		return ch.ID
	}
	return ""
}

// publishDue publishes messages of schedules. With traces on each is marked: it is a trace of its own.
func (b *broker) publishDue(ctx context.Context, msgs []*durable.Message) []error {
	if b.tracer != nil {
		for _, m := range msgs {
			m.Headers = tracing.MarkLater(m.Headers)
		}
	}
	return b.plane.ForwardAll(ctx, msgs)
}

// traceLinks are what timelines say of traces.
func (b *broker) traceLinks() api.Traces {
	return api.Traces{On: b.tracer != nil, Follow: b.cfg.TraceFollow, Failures: b.tracer != nil && b.cfg.TraceFailures,
		URL: b.cfg.TraceURL}
}
