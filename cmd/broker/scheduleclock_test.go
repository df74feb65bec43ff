//go:build clockjump

package main

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/test/clockjump"
)

// A broker whose wall clock is a day off, to and fro, takes and sends scheduled messages by the
// clock of the store: none early, none late.
func TestFaultClockOfABrokerDoesNotMoveSchedules(t *testing.T) {
	parallel(t)
	dir := t.TempDir()
	program, err := clockjump.Build(dir, "github.com/penstock-broker/penstock/cmd/broker")
	require.NoError(t, err)
	file := filepath.Join(dir, "clock")
	require.NoError(t, clockjump.Set(file, 0))
	w := realWorld(t)
	sink := newSink(t, nil)
	p := w.run(program, clockjump.Env+"="+file)
	p.awaitReady()
	s := p.stage(t, "k="+sink.URL)
	for i, by := range []time.Duration{24 * time.Hour, -24 * time.Hour, 0} {
		require.NoError(t, clockjump.Set(file, by))
		p.awaitClock(by)
		due := time.Now().Add(lead)
		s.later(due.Format(time.RFC3339Nano), fmt.Sprint("m-", i))
		require.Equal(t, 412, s.post("x", "X-Broker-Scheduled-For", in(-time.Second)).status)
		eventually(t, "the message", func() bool { return sink.count() == i+1 })
		got := sink.all()[i]
		require.False(t, got.at.Before(due))
		t.Logf("clock off by %v: %v after its time", by, got.at.Sub(due))
	}
}
