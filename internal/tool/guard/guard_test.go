package guard

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
)

// capture collects what is logged during a test.
func capture(t *testing.T) *bytes.Buffer {
	var b bytes.Buffer
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&b, nil)))
	t.Cleanup(func() { slog.SetDefault(before) })
	return &b
}

func TestWorkThatPanicsFails(t *testing.T) {
	log := capture(t)
	before := panics(t, "a part")
	err := Do("a part", func() error { panic("boom") }, "request_id", "r-1")
	require.ErrorIs(t, err, ErrPanic)
	require.Equal(t, 1.0, panics(t, "a part")-before)
	for _, want := range []string{`where="a part"`, "panic=boom", "request_id=r-1", "guard_test.go"} {
		require.Contains(t, log.String(), want)
	}
	broken := errors.New("broken")
	require.Equal(t, broken, Do("a part", func() error { return broken }))
	require.NoError(t, Do("a part", func() error { return nil }))
}

func TestALoopBeginsAgainUntilItReturns(t *testing.T) {
	capture(t)
	synctest.Test(t, func(t *testing.T) {
		rounds := 0
		Loop(t.Context(), "a loop", func(context.Context) {
			if rounds++; rounds < 3 {
				panic(rounds)
			}
		})
		require.Equal(t, 3, rounds)
		ctx, cancel := context.WithTimeout(t.Context(), 10*pause)
		defer cancel()
		start := time.Now()
		Loop(ctx, "a loop", func(context.Context) { panic("always") })
		require.Equal(t, 10*pause, time.Since(start))
	})
}

func TestAVitalPanicIsToldAndGoesOn(t *testing.T) {
	log := capture(t)
	require.PanicsWithValue(t, "boom", func() { Vital("a lock", func() { panic("boom") }) })
	require.Contains(t, log.String(), "the broker ends")
	require.Contains(t, log.String(), "guard_test.go")
}

// panics is how many panics of a part were counted.
func panics(t *testing.T, where string) (n float64) {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(Panics)
	families, err := registry.Gather()
	require.NoError(t, err)
	for _, family := range families {
		for _, m := range family.GetMetric() {
			if m.GetLabel()[0].GetValue() == where {
				n = m.GetCounter().GetValue()
			}
		}
	}
	return n
}
