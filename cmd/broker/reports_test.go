package main

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// A reportReceiver is a server that gets reports of errors.
type reportReceiver struct {
	url string

	mu  sync.Mutex
	raw strings.Builder
}

func newReportReceiver(t *testing.T) *reportReceiver {
	got := &reportReceiver{}
	got.url = serveHTTP(t, func(_ http.ResponseWriter, r *http.Request, _ <-chan struct{}) {
		body, _ := io.ReadAll(r.Body)
		got.mu.Lock()
		defer got.mu.Unlock()
		got.raw.WriteString(r.URL.Path + "\n" + string(body))
	})
	return got
}

// text is all that came: paths and bodies.
func (r *reportReceiver) text() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.raw.String()
}

// requireDead makes consumers of a stage fail until one is DEAD, and waits for the report.
func (r *reportReceiver) requireDead(t *testing.T, s *stage) {
	t.Helper()
	for range 3 {
		s.publish("a payload that nobody else sees")
	}
	eventually(t, "the report", func() bool { return strings.Contains(r.text(), "is DEAD") })
}

func TestAConsumerThatBecameDeadIsReportedOnce(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		reports := newReportReceiver(t)
		dsn := filepath.Join(t.TempDir(), "dsn")
		require.NoError(t, os.WriteFile(dsn, []byte(strings.Replace(reports.url, "://", "://publickey@", 1)+"/42\n"), 0o600))
		p := w.with(quick...).start("SENTRY_DSN_FILE="+dsn, "SENTRY_ENVIRONMENT=staging", "BROKER_TOMBSTONE_AFTER=1")
		sink := newSink(t, func(int, received) int { return 500 })
		s := p.stage(t, "k="+sink.URL)
		reports.requireDead(t, s)
		require.Equal(t, 0, p.stop())
		got := reports.text()
		require.Contains(t, got, "/api/42/envelope/\n")
		require.Equal(t, 1, strings.Count(got, `"message":"a consumer is DEAD`))
		for _, want := range []string{`"consumer":"k"`, `"channel":"` + s.channel + `"`, `"environment":"staging"`,
			`"release":"` + version + `"`} {
			require.Contains(t, got, want)
		}
		for _, secret := range []string{"p-token", "c-token", "k-token", adminToken, "nobody else sees"} {
			require.NotContains(t, got, secret)
		}
		require.NotContains(t, p.log.String(), "publickey")
	})
}

func TestAMalformedDSNIsRefusedAtStart(t *testing.T) {
	_, err := readConfig([]string{"SENTRY_DSN=https://hidden.example/x", "BROKER_LISTEN=nowhere"})
	require.ErrorContains(t, err, "SENTRY_DSN must be a DSN")
	require.ErrorContains(t, err, "BROKER_LISTEN")
	require.NotContains(t, err.Error(), "hidden")
	_, err = readConfig([]string{"SENTRY_DSN_FILE=/nowhere/dsn"})
	require.ErrorContains(t, err, "SENTRY_DSN_FILE")
}
