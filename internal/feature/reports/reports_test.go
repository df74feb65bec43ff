package reports

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A receiver is a server of envelopes.
type receiver struct {
	*httptest.Server
	mu     sync.Mutex
	events []map[string]any
	raw    string
	path   string
}

func newReceiver(t *testing.T) *receiver {
	r := &receiver{}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, _ := io.ReadAll(req.Body)
		r.mu.Lock()
		defer r.mu.Unlock()
		r.path, r.raw = req.URL.Path, r.raw+string(body)
		lines := strings.Split(string(body), "\n")
		for i, line := range lines[1:] {
			var item struct {
				Type string `json:"type"`
			}
			if json.Unmarshal([]byte(line), &item) == nil && item.Type == "event" {
				var e map[string]any
				_ = json.Unmarshal([]byte(lines[i+2]), &e)
				r.events = append(r.events, e)
			}
		}
	}))
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) dsn() string {
	return strings.Replace(r.URL, "http://", "http://publickey@", 1) + "/42"
}

// logger returns a logger that reports, what it writes, and the reporter.
func logger(t *testing.T, dsn string) (*slog.Logger, *bytes.Buffer, *Reporter) {
	r, err := New(Settings{DSN: dsn, Environment: "staging"}, "1.2.3")
	require.NoError(t, err)
	var out bytes.Buffer
	return slog.New(r.Handler(slog.NewTextHandler(&out, nil))), &out, r
}

// closed ends r after its last report, however slow the machine is.
func closed(r *Reporter) {
	r.client.Flush(time.Minute)
	r.Close()
}

func TestPanicsInternalErrorsAndTombstonesAreReported(t *testing.T) {
	server := newReceiver(t)
	log, out, r := logger(t, server.dsn())
	func() {
		defer func() {
			log.Error("panic", "where", "delivery", "panic", recover(), "stack", "the stack as text", "request_id", "r1")
		}()
		panic("index out of range")
	}()
	log.Warn("request failed", "status", 500, "code", "internal_error", "error", errors.New("no such table"),
		"request_id", "r2")
	log.Warn("request failed", "status", 503, "code", "unavailable", "error", errors.New("away"))
	log.Warn(TombstoneLine, "channel", "orders", "consumer", "billing", "reason", "10 failures")
	log.Warn("something else", "status", 500)
	log.With("node", 3).Error("the journal cannot be opened")
	closed(r)

	server.mu.Lock()
	defer server.mu.Unlock()
	require.Equal(t, "/api/42/envelope/", server.path)
	require.Len(t, server.events, 4)
	byKind := map[string]map[string]any{}
	for _, e := range server.events {
		require.Equal(t, "1.2.3", e["release"])
		require.Equal(t, "staging", e["environment"])
		require.Nil(t, e["request"])
		byKind[e["tags"].(map[string]any)["kind"].(string)] = e
	}
	panicked := byKind["panic"]["exception"].([]any)[0].(map[string]any)
	require.Equal(t, "index out of range", panicked["value"])
	require.NotEmpty(t, panicked["stacktrace"].(map[string]any)["frames"])
	require.Equal(t, "delivery", byKind["panic"]["tags"].(map[string]any)["where"])
	require.Equal(t, "r2", byKind["internal error"]["tags"].(map[string]any)["request_id"])
	tombstone := byKind["tombstone"]["tags"].(map[string]any)
	require.Equal(t, []any{"orders", "billing"}, []any{tombstone["channel"], tombstone["consumer"]})
	require.Equal(t, "the journal cannot be opened", byKind["error"]["message"])
	require.NotContains(t, server.raw, `"sessions"`)
	require.Equal(t, 6, strings.Count(out.String(), "\n"), "each line is in the log, too")
}

func TestReportsAreBounded(t *testing.T) {
	server := newReceiver(t)
	log, _, r := logger(t, server.dsn())
	for range 1000 {
		log.Error("the same")
	}
	for i := range 1000 {
		log.Error("another " + string(rune('a'+i%26)) + strings.Repeat("x", i/26))
	}
	closed(r)
	server.mu.Lock()
	defer server.mu.Unlock()
	require.Len(t, server.events, mostPerMinute)
}

func TestAServerOfReportsThatHangsDelaysNothing(t *testing.T) {
	over := make(chan struct{})
	hangs := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-over:
		case <-r.Context().Done():
		}
	}))
	defer hangs.Close()
	defer close(over)
	log, _, r := logger(t, strings.Replace(hangs.URL, "http://", "http://k@", 1)+"/1")
	begun := time.Now()
	for i := range 100 {
		log.Error("a line", "where", i)
	}
	require.Less(t, time.Since(begun), 20*time.Second)
	r.Close()
	require.Less(t, time.Since(begun), closeWithin+30*time.Second)
}

func TestAMalformedDSNIsRefusedWithoutShowingIt(t *testing.T) {
	for _, dsn := range []string{"hidden", "https://hidden.example/1", "ftp://hidden@h/1", "https://hidden@h",
		"https://hidden@h/"} {
		err := (&Settings{DSN: dsn}).Check()
		require.Error(t, err, dsn)
		require.NotContains(t, err.Error(), "hidden")
	}
	require.NoError(t, (&Settings{}).Check())
	none, err := New(Settings{}, "1")
	require.NoError(t, err)
	require.Nil(t, none)
	none.Close()
}

func TestALevelAboveErrorsDoesNotHideThemFromReports(t *testing.T) {
	server := newReceiver(t)
	r, err := New(Settings{DSN: server.dsn()}, "1")
	require.NoError(t, err)
	slog.New(r.Handler(slog.DiscardHandler)).Error("not shown")
	closed(r)
	server.mu.Lock()
	defer server.mu.Unlock()
	require.Len(t, server.events, 1)
}
