package api

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/tool/intake"
)

// noPlane does nothing, so that what is measured is what this package adds to
// every message.
type noPlane struct{}

func (noPlane) BroadcastBatch(*fasthttp.RequestCtx)                {}
func (noPlane) Request(*fasthttp.RequestCtx)                       {}
func (noPlane) ClaimJobs(*fasthttp.RequestCtx, intake.Limit)       {}
func (noPlane) UpdateJobs(*fasthttp.RequestCtx, intake.Limit)      {}
func (noPlane) Broadcast(rc *fasthttp.RequestCtx, _ string)        { rc.SetStatusCode(fasthttp.StatusCreated) }
func (noPlane) QueuedJobs(rc *fasthttp.RequestCtx, _ intake.Limit) {}
func (noPlane) MoveJob(rc *fasthttp.RequestCtx, _ intake.Limit)    {}
func (noPlane) Receipt(*fasthttp.RequestCtx)                       {}

func (noPlane) Reschedule(*fasthttp.RequestCtx, catalogue.Standing, *durable.Scheduled,
	durable.ScheduleChange) (*durable.Scheduled, error) {
	return nil, durable.ErrNotFound
}

func broadcastRequest() (*API, *fasthttp.RequestCtx) {
	a := New(Options{Data: noPlane{}, Registerer: prometheus.NewRegistry()})
	rc := &fasthttp.RequestCtx{}
	rc.Request.Header.SetMethod("POST")
	rc.Request.SetRequestURI("/channel/sample-channel/broadcast")
	rc.Request.Header.SetHost("broker")
	return a, rc
}

func handle(a *API, rc *fasthttp.RequestCtx) {
	rc.Response.Reset()
	rc.ResetUserValues()
	a.Handler(rc)
}

func BenchmarkBroadcastOverhead(b *testing.B) {
	a, rc := broadcastRequest()
	b.ReportAllocs()
	for b.Loop() {
		handle(a, rc)
	}
}

func TestTheWayToTheDataPlaneAllocatesLittle(t *testing.T) {
	a, rc := broadcastRequest()
	handle(a, rc)
	require.Equal(t, fasthttp.StatusCreated, rc.Response.StatusCode())
	// The request ID as text, and the channel ID as a string in an interface.
	require.LessOrEqual(t, testing.AllocsPerRun(1000, func() { handle(a, rc) }), 4.0)
}
