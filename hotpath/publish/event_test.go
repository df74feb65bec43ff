package publish

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/internal/model/cloudevents"
)

func ordinaryHeader() *fasthttp.RequestHeader {
	h := &fasthttp.RequestHeader{}
	h.SetMethod("POST")
	h.SetHost("127.0.0.1:8080")
	h.SetContentType("application/json")
	for _, name := range []string{"X-Broker-Channel-Token", "X-Broker-Producer-ID", "X-Broker-Producer-Token",
		"X-Broker-Message-ID", "Accept", "User-Agent", "Traceparent"} {
		h.Set(name, "some value")
	}
	return h
}

// A message that is no event and that is sent now pays for neither.
func TestAnOrdinaryMessageAllocatesNothingForEventsAndSchedules(t *testing.T) {
	h := ordinaryHeader()
	d := new(Draft)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		mode, err := eventMode(h)
		require.True(t, err == nil && mode == cloudevents.None)
		require.True(t, d.fill(h, when) == nil && d.times == times0)
	}))
}

func BenchmarkEventsAndSchedulesOfAnOrdinaryMessage(b *testing.B) {
	h := ordinaryHeader()
	d := new(Draft)
	b.ReportAllocs()
	for b.Loop() {
		_, _ = eventMode(h)
		_ = d.fill(h, when)
	}
}
