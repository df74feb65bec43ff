package api

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// publishHead is the header block of a usual publish.
const publishHead = "Host: broker.example:8080\r\nUser-Agent: client/1.0\r\nContent-Type: " +
	"application/json\r\nContent-Length: 256\r\nAccept: */*\r\n" +
	"X-Broker-Channel-Token: channel-token\r\nX-Broker-Producer-ID: producer\r\nX-Broker-Producer-Token: " +
	"producer-token\r\n" +
	"X-Broker-Message-ID: 0123456789\r\nX-Broker-Message-Priority: 7\r\nX-Broker-Metadata-Headers: " +
	"traceparent\r\ntraceparent: 00-a-b-01\r\n\r\n"

func TestHeadersOfTheBrokerOccurOnce(t *testing.T) {
	w := newWorld(t, nil)
	addr := startServer(t, w.api.Handler, nil)
	many := func(n int, last string) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, "X-Broker-%04d: v\r\n", i)
		}
		return b.String() + last
	}
	for name, tc := range map[string]struct {
		headers string
		twice   bool
	}{
		"a token twice":                 {"X-Broker-Admin-Token: a\r\nX-Broker-Admin-Token: b\r\n", true},
		"the same value twice":          {"X-Broker-Channel-Token: a\r\nX-Broker-Channel-Token: a\r\n", true},
		"another case":                  {"X-Broker-Channel-Token: a\r\nHost2: x\r\nx-bROKER-channel-tokeN: b\r\n", true},
		"an unknown name":               {"X-Broker-Other: a\r\nX-Broker-Other: b\r\n", true},
		"an empty value":                {"X-Broker-Message-ID:\r\nX-Broker-Message-ID: b\r\n", true},
		"the last of many":              {many(400, "x-broker-0000: v\r\n"), true},
		"many":                          {many(400, ""), false},
		"names of one length":           {"X-Broker-Aaaa: a\r\nX-Broker-Aaab: b\r\nX-Broker-Aaba: c\r\n", false},
		"a name and a longer one":       {"X-Broker-A: a\r\nX-Broker-AA: b\r\n", false},
		"the prefix alone":              {"X-Broker-: a\r\nX-Broker-: b\r\n", true},
		"a header of another kind":      {"X-Brokers: a\r\nX-Brokers: b\r\nX-Tag: a\r\nX-Tag: b\r\n", false},
		"characters beside the letters": {"X-Broker-A^: a\r\nX-Broker-A~: b\r\n", false},
	} {
		t.Run(name, func(t *testing.T) {
			stored := w.get("/producer/p").Body
			for _, request := range []string{
				"GET /livez HTTP/1.1\r\nHost: localhost\r\n" + tc.headers + "\r\n",
				"PUT /producer/p HTTP/1.1\r\nHost: localhost\r\nContent-Type: " + formType + "\r\n" + tc.headers +
					"Content-Length: 6\r\n\r\nname=x",
				"POST /channel/c/broadcast HTTP/1.1\r\nHost: localhost\r\n" + tc.headers +
					"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
			} {
				w.data = nil
				answers := raw(t, addr, request+"GET /version HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
				require.Len(t, answers, 2, "the connection goes on with the next request")
				require.Equal(t, 200, answers[1].StatusCode)
				if !tc.twice && strings.Contains(tc.headers, "X-Brokers") {
					require.Less(t, answers[0].StatusCode, 300)
					continue
				} else if !tc.twice {
					requireProblem(t, answers[0], 400, "unknown_header")
					continue
				}
				requireProblem(t, answers[0], 400, "duplicate_header")
				require.Empty(t, w.data)
			}
			if tc.twice {
				require.Equal(t, withoutRequestID(stored), withoutRequestID(w.get("/producer/p").Body))
			}
		})
	}
}

func TestInspectingAHeaderBlockAllocatesNothing(t *testing.T) {
	block := []byte(publishHead)
	_, err := inspect(block)
	require.NoError(t, err)
	require.Zero(t, testing.AllocsPerRun(100, func() { _, _ = inspect(block) }))
}

func BenchmarkInspect(b *testing.B) {
	block := []byte(publishHead)
	for b.Loop() {
		_, _ = inspect(block)
	}
}

// withoutRequestID cuts the request ID off the body of a refusal.
func withoutRequestID(body string) string {
	text, _, _ := strings.Cut(body, `,"request_id"`)
	return text
}
