package pull

import (
	"encoding/json"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/hotpath/metadata"
	"github.com/penstock-broker/penstock/internal/model/problem"
)

func FuzzClaimQuery(f *testing.F) {
	for _, s := range []string{"limit=1&wait=20s&timeout=60", "wait=5", "wait=-1ns", "limit=99999999999999999999",
		"timeout=604801", "wait=2562047h47m17s", "limit=%00", "wait=1e9s", "limit=1&limit=2"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, query string) {
		var args fasthttp.Args
		args.Parse(query)
		q, err := parseClaim(&args, nil)
		if err != nil {
			require.Equal(t, 400, problem.From(err).Status)
			return
		}
		require.True(t, q.limit >= 1 && q.limit <= maxClaimed, "%d", q.limit)
		require.True(t, q.wait >= 0 && q.wait <= maxClaimWait, "%v", q.wait)
		require.True(t, q.timeout == 0 || q.timeout >= time.Second && q.timeout <= MaxIncrementalTimeout*time.Second,
			"%v", q.timeout)
		if n, err := parseLimit(&args); err == nil {
			require.True(t, n >= 0 && n <= maxListed, "%d", n)
		}
	})
}

// What is shown of a message is JSON, whatever its metadata and content type.
func FuzzMessageMetadataJSON(f *testing.F) {
	f.Add("X-A", "v\"\\\u2028", "a/b")
	f.Add("X-A", "\xff", "\xfe")
	f.Fuzz(func(t *testing.T, name, value, contentType string) {
		stored, err := metadata.Merge(nil, map[string]string{name: value}, "X-Key")
		if err != nil || len(contentType) > 255 {
			return
		}
		var m struct {
			ContentType string
			Headers     map[string]string
		}
		shown := textOf(&durable.Message{Headers: stored, ContentType: contentType})
		require.NoError(t, json.Unmarshal(shown, &m), "%q", shown)
		require.True(t, utf8.Valid(shown), "%q", shown)
	})
}
