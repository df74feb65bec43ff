package hotpath

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/hotpath/metadata"
	"github.com/penstock-broker/penstock/internal/intake"
	"github.com/penstock-broker/penstock/internal/problem"
	"github.com/penstock-broker/penstock/redisq"
)

func FuzzUpdates(f *testing.F) {
	for _, s := range []string{`{"Updates":[{"ID":"06gvk862do000000000g","Lease":"x.1","NextState":"DELIVERED"}]}`, `{"Updates":[]}`, `{"Updates":null}`, `{"Updates":[{"Delay":1e99}]}`, `[[[[`, `{"Updates":[{"IncrementalTimeout":-9223372036854775808}]} {}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		updates, err := parseUpdates(body)
		if err != nil {
			require.Equal(t, 400, problem.From(err).Status)
			return
		}
		require.True(t, json.Valid(body))
		require.LessOrEqual(t, len(updates), maxUpdates)
	})
}

func FuzzClaimQuery(f *testing.F) {
	for _, s := range []string{"limit=1&wait=20s&timeout=60", "wait=5", "wait=-1ns", "limit=99999999999999999999", "timeout=604801", "wait=2562047h47m17s", "limit=%00", "wait=1e9s", "limit=1&limit=2"} {
		f.Add(s)
	}
	p := &puller{visible: time.Second}
	f.Fuzz(func(t *testing.T, query string) {
		var args fasthttp.Args
		args.Parse(query)
		q, err := p.parseClaim(&args, nil)
		if err != nil {
			require.Equal(t, 400, problem.From(err).Status)
			return
		}
		require.True(t, q.limit >= 1 && q.limit <= maxClaimed, "%d", q.limit)
		require.True(t, q.wait >= 0 && q.wait <= maxClaimWait, "%v", q.wait)
		require.True(t, q.timeout >= time.Second && q.timeout <= MaxIncrementalTimeout*time.Second, "%v", q.timeout)
		if n, err := parseLimit(&args); err == nil {
			require.True(t, n >= 0 && n <= maxListed, "%d", n)
		}
	})
}

func FuzzMessageHead(f *testing.F) {
	for _, s := range [][2]string{{"5", "text/plain"}, {"-1", "a\r\nb"}, {"1024", ""}, {"00007", "a\tb"}, {"\u0661", "\xff"}} {
		f.Add([]byte(s[0]), []byte(s[1]))
	}
	f.Fuzz(func(t *testing.T, priority, contentType []byte) {
		if n, err := parsePriority(priority); err == nil {
			require.True(t, n >= 0 && n <= redisq.MaxPriority)
		} else {
			require.Equal(t, 400, problem.From(err).Status)
		}
		var c contentTypes
		text, err := c.of(contentType)
		if err != nil {
			require.Equal(t, 400, problem.From(err).Status)
			return
		}
		require.NotEmpty(t, text)
		require.LessOrEqual(t, len(text), 255)
		require.False(t, strings.ContainsAny(text, "\r\n\x00"), "%q", text)
	})
}

// A stream is cut into the same lines however it arrives.
func FuzzLineSource(f *testing.F) {
	f.Add([]byte("a\nb\n\nc"), 1)
	f.Add(append(bytes.Repeat([]byte("x"), 70<<10), '\n', 'y'), 1000)
	f.Fuzz(func(t *testing.T, body []byte, step int) {
		s := newLineSource(&stepReader{body, max(step, 1)}, &publisher{maxBody: 64, maxWrites: 1, bytes: intake.NewBound(1 << 30)})
		var got [][]byte
		long := 0
		for {
			line, err := s.next()
			if err == errLineTooLong {
				long++
				got = append(got, nil)
				continue
			}
			if err != nil {
				break
			}
			got = append(got, bytes.Clone(line))
		}
		want := bytes.Split(body, []byte{'\n'})
		if len(want[len(want)-1]) == 0 {
			want = want[:len(want)-1]
		}
		require.Len(t, got, len(want))
		for i, w := range want {
			if got[i] == nil && len(w) > s.max {
				continue
			}
			require.Equal(t, string(w), string(got[i]))
		}
		s.release()
		require.Zero(t, s.p.bytes.Held(), "memory that is counted and not held")
	})
}

// A stepReader gives at most step bytes at a time.
type stepReader struct {
	left []byte
	step int
}

func (r *stepReader) Read(p []byte) (int, error) {
	if len(r.left) == 0 {
		return 0, io.EOF
	}
	n := copy(p[:min(len(p), r.step)], r.left)
	r.left = r.left[n:]
	return n, nil
}

// What is shown of a message is JSON, whatever its metadata and content type.
func FuzzMessageMetadataJSON(f *testing.F) {
	f.Add("X-A", "v\"\\\u2028", "a/b")
	f.Add("X-A", "\xff", "\xfe")
	f.Fuzz(func(t *testing.T, name, value, contentType string) {
		stored, err := metadata.Merge(nil, map[string]string{name: value}, "X-Key")
		if err != nil || checkContentType(contentType) != nil {
			return
		}
		var m struct {
			ContentType string
			Headers     map[string]string
		}
		shown := appendMessage(nil, &durable.Message{Headers: stored, ContentType: contentType})
		require.NoError(t, json.Unmarshal(shown, &m), "%q", shown)
		require.True(t, utf8.Valid(shown), "%q", shown)
	})
}
