package tracing

import (
	"encoding/binary"
	"math/rand/v2"

	"go.opentelemetry.io/otel/trace"
)

// A sampler decides which messages are recorded, as OTEL_TRACES_SAMPLER says.
type sampler struct {
	parent bool   // a message with a creation context is recorded as that says
	bound  uint64 // of the random part of the trace ID, 63 bits
}

const always = 1 << 63

// samples reports whether a message is recorded. p is its creation context, if known; otherwise it
// gets one, whose trace is returned.
func (s sampler) samples(p Parent, known bool) (root trace.TraceID, ok bool) {
	switch {
	case known && s.parent:
		return root, p.Sampled()
	case known:
		return root, s.takes(p.Trace)
	case s.bound == 0:
		return root, false
	}
	root = randomTrace()
	return root, s.takes(root)
}

// takes is the rule of TraceIdRatioBased in the SDK for Go, so that both sample the same traces.
func (s sampler) takes(id trace.TraceID) bool {
	return binary.BigEndian.Uint64(id[8:])>>1 < s.bound
}

func randomTrace() (id trace.TraceID) {
	for !id.IsValid() {
		binary.NativeEndian.PutUint64(id[:8], rand.Uint64())
		binary.NativeEndian.PutUint64(id[8:], rand.Uint64())
	}
	return id
}

func randomSpan() (id trace.SpanID) {
	for !id.IsValid() {
		binary.NativeEndian.PutUint64(id[:], rand.Uint64())
	}
	return id
}
