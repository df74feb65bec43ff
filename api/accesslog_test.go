package api

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// A logBuffer collects lines of JSON.
type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

// requests returns the lines of requests, and their text.
func (b *logBuffer) requests(t *testing.T) (lines []map[string]any, text string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for line := range strings.Lines(b.buf.String()) {
		var fields map[string]any
		require.NoError(t, json.Unmarshal([]byte(line), &fields))
		if fields["msg"] == "request" {
			lines = append(lines, fields)
			text += line
		}
	}
	return lines, text
}

func loggingWorld(t *testing.T, setting string) (*world, *logBuffer) {
	access, err := ParseAccessLog(setting)
	require.NoError(t, err)
	out := &logBuffer{}
	w := newWorld(t, func(o *Options) { o.Access, o.Log = access, slog.New(slog.NewJSONHandler(out, nil)) })
	return w, out
}

func TestARequestHasALineInTheLogThatSaysWhatItWas(t *testing.T) {
	w, out := loggingWorld(t, "all")
	w.do("GET", "/channel/nowhere/consumer/k?Token=secret-query", "", "X-Request-ID: r-1",
		"User-Agent: "+strings.Repeat("u", 500), "X-Broker-Producer-ID: shop", "X-Broker-Channel-Token: secret-header")
	w.do("GET", "/livez", "")
	lines, text := out.requests(t)
	require.Len(t, lines, 2)
	refused := lines[0]
	require.Equal(t, "GET /channel/{channel}/consumer/{consumer}", refused["route"])
	require.Equal(t, "nowhere", refused["channel"])
	require.Equal(t, "k", refused["consumer"])
	require.Equal(t, "r-1", refused["request_id"])
	require.Equal(t, "shop", refused["producer"])
	require.GreaterOrEqual(t, refused["status"], 400.0)
	require.NotEmpty(t, refused["code"])
	require.NotEmpty(t, refused["address"])
	require.Contains(t, refused, "ms")
	require.Len(t, refused["user_agent"], maxLogged)
	require.Equal(t, 200.0, lines[1]["status"])
	require.NotContains(t, text, "secret")
}

func TestAPublishHasALineWithItsChannel(t *testing.T) {
	w, out := loggingWorld(t, "all")
	w.do("POST", "/channel/c1/broadcast", "body of a user")
	lines, text := out.requests(t)
	require.Len(t, lines, 1)
	require.Equal(t, broadcastRoute, lines[0]["route"])
	require.Equal(t, "c1", lines[0]["channel"])
	require.Equal(t, float64(len("body of a user")), lines[0]["request_bytes"])
	require.NotContains(t, text, "of a user")
}

func TestALineHasNoLinkAndNoReceipt(t *testing.T) {
	w, out := loggingWorld(t, "all")
	w.do("GET", "/channel/c/consumer/k/revive/secret-link", "")
	w.do("GET", "/receipt/secret-receipt", "")
	lines, text := out.requests(t)
	require.Len(t, lines, 2)
	require.NotContains(t, text, "secret")
}

func TestTheAccessLogIsOffOrForErrorsOrSampled(t *testing.T) {
	const asked = 400
	for _, tc := range []struct {
		setting     string
		least, most int
	}{{"off", 0, 0}, {"errors", asked, asked}, {"1/4", 1, 2*asked - 1}, {"all", 2 * asked, 2 * asked}} {
		w, out := loggingWorld(t, tc.setting)
		for range asked {
			w.do("GET", "/livez", "")
			w.do("GET", "/nowhere", "")
		}
		lines, _ := out.requests(t)
		require.GreaterOrEqual(t, len(lines), tc.least, tc.setting)
		require.LessOrEqual(t, len(lines), tc.most, tc.setting)
		for _, line := range lines {
			if tc.setting == "errors" {
				require.Equal(t, 404.0, line["status"])
			}
		}
	}
}

func TestASettingOfTheAccessLogThatMeansNothingIsRefused(t *testing.T) {
	for _, text := range []string{"on", "true", "1/0", "1/", "2/100", "1/-1", "1/1e3", "Errors", "100"} {
		_, err := ParseAccessLog(text)
		require.ErrorContains(t, err, "1/100", text)
	}
}
