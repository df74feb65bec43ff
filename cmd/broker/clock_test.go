//go:build clockjump

package main

import (
	"net/http"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/test/clockjump"
)

// awaitClock waits until the process answers with a date that is by from ours.
func (p *process) awaitClock(by time.Duration) {
	p.t.Helper()
	eventually(p.t, "the clock to jump by "+by.String(), func() bool {
		at, err := http.ParseTime(p.do("GET", "/livez", "").header.Get("Date"))
		return err == nil && at.Sub(time.Now().Add(by)).Abs() < 10*time.Minute
	})
}

// The wall clock of one of two brokers jumps by an hour and a day, to and fro,
// while both publish and deliver, and it is restarted with a wrong one. Nothing is
// lost or sent twice, IDs follow the clock of the store, its node number stays its
// own, and a retry comes when it should, also when Redis has forgotten it.
func TestFaultClockOfABrokerJumpsOnRealServers(t *testing.T) {
	parallel(t)
	dir := t.TempDir()
	program, err := clockjump.Build(dir, "github.com/penstock-broker/penstock/cmd/broker")
	require.NoError(t, err)
	file := filepath.Join(dir, "clock")
	require.NoError(t, clockjump.Set(file, 0))
	w := realWorld(t).with("BROKER_RATIONAL_DELAY=500ms", "BROKER_DELIVERY_TIMEOUT=20s", "BROKER_RETRY_BACKOFF=2s",
		"BROKER_MAX_RETRIES=5")
	var failing atomic.Bool
	sink := newSink(t, func(_ int, r received) int {
		if r.body == "m-retry" && failing.Load() {
			return 500
		}
		return 204
	})
	other := w.start()
	begin := func() *process { // its listener has a new address each time
		p := w.run(program, clockjump.Env+"="+file)
		p.awaitReady()
		return p
	}
	p := begin()
	eventually(t, "two brokers", func() bool { return other.gauge(t, "penstock_brokers") == 2 })
	s, retries := p.stage(t, "k="+sink.URL), p.stage(t, "k="+sink.URL)
	var target atomic.Pointer[process]
	target.Store(p)
	l := startSteady(s, 4, func(producer int) *process {
		if producer == 0 {
			return other
		}
		return target.Load()
	})
	jumps := []time.Duration{time.Hour, -time.Hour, 24 * time.Hour, -24 * time.Hour, 0}
	for _, by := range jumps {
		ours := nodeOf(t, p)
		require.NoError(t, clockjump.Set(file, by))
		p.awaitClock(by)
		l.progress(40)
		before := time.Now()
		location := retries.on(p).publish("m-" + by.String())
		id, err := ident.Parse(retries.on(p).message(location).ID)
		require.NoError(t, err)
		require.WithinDuration(t, before, id.Time(), time.Minute, "an ID follows the clock of the store")
		require.Equal(t, ours, nodeOf(t, p))
		require.EqualValues(t, 2, other.gauge(t, "penstock_brokers"))
		require.NotContains(t, p.log.String(), "node lease was lost")

		target.Store(other)
		l.progress(20)
		require.Zero(t, p.stop())
		p = begin() // with the wrong clock from its first moment
		target.Store(p)
	}
	l.progress(40)
	l.finish()
	l.requireStoredOnce(w.dsn())
	require.Zero(t, w.requireAll(sink, l.bodies()), "each once")

	// A retry that Redis forgets is due by what the store remembers of it.
	for _, by := range jumps {
		require.NoError(t, clockjump.Set(file, by))
		p.awaitClock(by)
		failing.Store(true)
		n := sink.times("m-retry")
		late := retries.on(p).publish("m-retry")
		eventually(t, "a failed attempt", func() bool { return retries.on(p).message(late).Jobs[0].NextAttemptAt != nil })
		failing.Store(false)
		failed := time.Now()
		w.flushall()
		eventually(t, "the retry", func() bool { return sink.times("m-retry") >= n+2 })
		t.Logf("%v: a retry in 2 s that Redis forgot came after %v", by, time.Since(failed).Round(10*time.Millisecond))
	}
}
