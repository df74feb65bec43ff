package tracing

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/ident"
)

const (
	traceText = "4bf92f3577b34da6a3ce929d0e0e4736"
	spanText  = "00f067aa0ba902b7"
)

// tracer returns a tracer with variables, and what it has recorded.
func tracer(t testing.TB, values map[string]string, change func(*Settings)) (*Tracer, *tracetest.InMemoryExporter) {
	values["OTEL_EXPORTER_OTLP_ENDPOINT"] = "http://127.0.0.1:1"
	s, wrong, _ := Read(values)
	require.Empty(t, wrong)
	s.Follow = time.Minute
	if change != nil {
		change(&s)
	}
	memory := tracetest.NewInMemoryExporter()
	tr := newTracer(Options{Settings: s, Channel: func(uint32) string { return "c" },
		NowMs: func() int64 { return time.Now().UnixMilli() }, Log: slog.New(slog.DiscardHandler)}, memory)
	t.Cleanup(tr.Close)
	return tr, memory
}

func spans(t testing.TB, tr *Tracer, m *tracetest.InMemoryExporter) tracetest.SpanStubs {
	require.NoError(t, tr.provider.ForceFlush(context.Background()))
	return m.GetSpans()
}

func headers(flags string) []byte {
	return []byte("X-Broker-Ordering-Key:k\nx-tenant:T1\nTraceparent:00-" + traceText + "-" + spanText + "-" +
		flags + "\nz:1\n")
}

func attemptOf(h []byte) Attempt {
	return Attempt{Consumer: &durable.Consumer{ID: "k", No: 7}, Message: &durable.Message{ID: idAt(time.Now()),
		Headers: h},
		No: 1, Begun: time.Now()}
}

func idAt(at time.Time) (id ident.ID) {
	ms := uint64(at.UnixMilli()) << 16
	for i := range 8 {
		id[i] = byte(ms >> (56 - 8*i))
	}
	return id
}

func TestAMessageThatIsNotSampledAllocatesNothing(t *testing.T) {
	tr, memory := tracer(t, map[string]string{"OTEL_TRACES_SAMPLER": "parentbased_traceidratio",
		"OTEL_TRACES_SAMPLER_ARG": "0"}, nil)
	k := &durable.Consumer{ID: "k", No: 7}
	for name, h := range map[string][]byte{"unsampled": headers("00"), "none": []byte("x:1\n"), "empty": nil,
		"malformed": []byte("traceparent:zz\n")} {
		m := &durable.Message{ID: idAt(time.Now()), Headers: h}
		begun := time.Now()
		require.Zero(t, testing.AllocsPerRun(100, func() {
			if tr.Send(m, "", begun) != nil {
				t.Fatal("recorded")
			}
		}), "publish, "+name)
		require.Zero(t, testing.AllocsPerRun(100, func() {
			if tr.Process(Attempt{Consumer: k, Message: m, No: 1, Begun: begun}) != nil {
				t.Fatal("recorded")
			}
		}), "attempt, "+name)
		require.Zero(t, testing.AllocsPerRun(100, func() {
			tr.Receive(Attempt{Consumer: k, Message: m, No: 1, Begun: begun})
			tr.Listed(Attempt{Consumer: k, Message: m})
			if tr.Settle(k, m.ID, nil, true, begun) != nil {
				t.Fatal("recorded")
			}
		}), "pull, "+name)
		require.Equal(t, h, m.Headers)
	}
	require.Empty(t, spans(t, tr, memory))
}

func TestParentsAreReadAsW3CDemands(t *testing.T) {
	const good = "00-" + traceText + "-" + spanText + "-01"
	for text, ok := range map[string]bool{good: true, good[:54] + "f": true, "cc" + good[2:]: true, "cc" +
		good[2:] + "-more": true,
		"": false, good[:54]: false, good + "-x": false, "cc" + good[2:] + "x": false, "ff" + good[2:]: false,
		strings.ToUpper(good): false, strings.Replace(good, "-", "_", 1): false, "0g" + good[2:]: false,
		"00-" + strings.Repeat("0", 32) + good[35:]: false, good[:36] + strings.Repeat("0", 16) + good[52:]: false} {
		p, known := ParseParent([]byte(text))
		require.Equal(t, ok, known, text)
		if ok {
			require.Equal(t, traceText, p.Trace.String())
			require.Equal(t, spanText, p.Span.String())
		}
	}
	p, _ := ParseParent([]byte(good))
	require.Equal(t, good, string(p.Append(nil)))
}

func FuzzParent(f *testing.F) {
	f.Add([]byte("00-" + traceText + "-" + spanText + "-01"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if p, ok := ParseParent(text); ok && text[0] == '0' && text[1] == '0' {
			require.Equal(t, string(text), string(p.Append(nil)))
		}
		_, _ = ParentOf(append([]byte("traceparent:"), text...))
		later(append([]byte("tracestate:"), text...))
	})
}

func TestThePublishBecomesTheContextOfItsMessage(t *testing.T) {
	tr, memory := tracer(t, map[string]string{}, nil)
	shared := headers("01")
	m := &durable.Message{Headers: shared}
	s := tr.Send(m, "", time.Time{})
	s.End("")
	require.Equal(t, string(headers("01")), string(shared), "lines of a batch share them")
	sent := spans(t, tr, memory)[0]
	require.Equal(t, strings.Replace(string(shared), spanText, sent.SpanContext.SpanID().String(), 1), string(m.Headers))

	m = &durable.Message{}
	tr.Send(m, "", time.Time{}).End("")
	root := spans(t, tr, memory)[1].SpanContext
	require.Equal(t, "traceparent:00-"+root.TraceID().String()+"-"+root.SpanID().String()+"-01\n", string(m.Headers))
}

func TestSamplersDecideByTheBytesOfTheContext(t *testing.T) {
	for _, c := range []struct {
		sampler, ratio  string
		sampled, unseen bool
		root            bool
	}{
		{"", "", true, false, true},
		{"parentbased_always_on", "", true, false, true},
		{"parentbased_always_off", "", true, false, false},
		{"parentbased_traceidratio", "0", true, false, false},
		{"parentbased_traceidratio", "1", true, false, true},
		{"always_on", "", true, true, true},
		{"always_off", "", false, false, false},
		{"traceidratio", "0.9", true, true, false},
		{"traceidratio", "0.1", false, false, false},
		{"always_off_typo", "", true, false, true},
	} {
		tr, _ := tracer(t, map[string]string{"OTEL_TRACES_SAMPLER": c.sampler, "OTEL_TRACES_SAMPLER_ARG": c.ratio}, nil)
		require.Equal(t, c.sampled, tr.Send(&durable.Message{Headers: headers("01")}, "", time.Now()) != nil, c)
		require.Equal(t, c.unseen, tr.Send(&durable.Message{Headers: headers("00")}, "", time.Now()) != nil, c)
		if c.sampler != "traceidratio" {
			require.Equal(t, c.root, tr.Send(&durable.Message{}, "", time.Now()) != nil, c)
		}
	}
}

// The decision by ratio is that of the SDK, so that the broker samples what its neighbours sample.
func TestTheRatioIsThatOfTheSDK(t *testing.T) {
	tr, _ := tracer(t, map[string]string{"OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0.3"}, nil)
	of := sdktrace.TraceIDRatioBased(0.3)
	for range 1000 {
		id := randomTrace()
		_, got := tr.sampler.samples(Parent{Trace: id}, true)
		want := of.ShouldSample(sdktrace.SamplingParameters{ParentContext: context.Background(), TraceID: id}).Decision
		require.Equal(t, want == sdktrace.RecordAndSample, got)
	}
}

func stored(after time.Duration) func(*Attempt) {
	return func(a *Attempt) { a.Message.ID = idAt(time.Now().Add(after)) }
}

func TestAttemptsFollowThePublishForATime(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Attempt)
		linked bool
	}{
		"at once":                  {func(*Attempt) {}, false},
		"in time":                  {stored(-50 * time.Second), false},
		"late":                     {stored(-61 * time.Second), true},
		"redriven":                 {func(a *Attempt) { a.RedrivenMs = 1 }, true},
		"replayed":                 {func(a *Attempt) { a.Consumer.Replay = &durable.Replay{No: 9} }, true},
		"scheduled":                {func(a *Attempt) { a.Message.Headers = MarkLater(a.Message.Headers) }, true},
		"of a clock that is ahead": {stored(time.Second), false},
	} {
		t.Run(name, func(t *testing.T) {
			tr, memory := tracer(t, map[string]string{}, nil)
			a := attemptOf(headers("01"))
			c.change(&a)
			tr.Process(a).End("")
			got := spans(t, tr, memory)[0]
			if !c.linked {
				require.Equal(t, traceText, got.SpanContext.TraceID().String())
				require.Equal(t, spanText, got.Parent.SpanID().String())
				require.Empty(t, got.Links)
				return
			}
			require.False(t, got.Parent.IsValid())
			require.Equal(t, TraceOf(a.Message.ID, 7, 1, a.RedrivenMs), got.SpanContext.TraceID())
			require.Equal(t, traceText, got.Links[0].SpanContext.TraceID().String())
		})
	}
}

func TestTheMarkOfASchedulePassesBesideOthers(t *testing.T) {
	marked := MarkLater([]byte("tracestate:a=1,b=2\ntraceparent:00-" + traceText + "-" + spanText + "-01\n"))
	require.Contains(t, string(marked), "tracestate:penstock=later,a=1,b=2\n")
	require.Equal(t, string(marked), string(MarkLater(marked)))
	state := stateOf(marked)
	require.Equal(t, "1", state.Get("a"))
	require.Empty(t, MarkLater(nil), "nothing is invented")
	require.False(t, later([]byte("tracestate:penstock=laterx\n")))
}

func TestSpansWithoutRoomAreDroppedAndCounted(t *testing.T) {
	hold := make(chan struct{})
	tr, _ := tracer(t, map[string]string{"OTEL_BSP_MAX_QUEUE_SIZE": "4", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "2"}, nil)
	tr.Close()
	s, _, _ := Read(map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://h:1", "OTEL_BSP_MAX_QUEUE_SIZE": "4",
		"OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "2"})
	tr = newTracer(Options{Settings: s, Channel: func(uint32) string { return "c" }, NowMs: func() int64 { return 0 },
		Log: slog.New(slog.DiscardHandler)}, held{hold})
	for range 100 {
		tr.Send(&durable.Message{}, "", time.Now()).End("")
	}
	begun := time.Now()
	tr.Close()
	require.Less(t, time.Since(begun), 10*time.Second)
	close(hold)
}

// A held exporter waits, whatever its context says.
type held struct{ until chan struct{} }

func (h held) ExportSpans(context.Context, []sdktrace.ReadOnlySpan) error { <-h.until; return nil }
func (held) Shutdown(context.Context) error                               { return nil }

func TestTheMemoryOfJobsIsBounded(t *testing.T) {
	tr, _ := tracer(t, map[string]string{}, nil)
	for i := range 3 * remembered {
		m := &durable.Message{ID: idAt(time.UnixMilli(int64(i + 1))), Headers: headers("01")}
		tr.Listed(Attempt{Consumer: &durable.Consumer{No: 7}, Message: m})
	}
	require.Equal(t, remembered, tr.listed.Len())
}

func BenchmarkPublishUnsampled(b *testing.B) {
	tr, _ := tracer(b, map[string]string{"OTEL_TRACES_SAMPLER": "parentbased_traceidratio",
		"OTEL_TRACES_SAMPLER_ARG": "0.01"}, nil)
	m, begun := &durable.Message{Headers: headers("00")}, time.Now()
	for b.Loop() {
		tr.Send(m, "", begun)
	}
}

func BenchmarkPublishSampled(b *testing.B) {
	tr, _ := tracer(b, map[string]string{}, nil)
	h, begun := headers("01"), time.Now()
	for b.Loop() {
		tr.Send(&durable.Message{Headers: h}, "", begun).End("")
	}
}

func BenchmarkAttemptUnsampled(b *testing.B) {
	tr, _ := tracer(b, map[string]string{}, nil)
	a := attemptOf(headers("00"))
	for b.Loop() {
		tr.Process(a)
	}
}

func BenchmarkAttemptSampled(b *testing.B) {
	tr, _ := tracer(b, map[string]string{}, nil)
	a := attemptOf(headers("01"))
	for b.Loop() {
		tr.Process(a).End("")
	}
}
