//go:build unix

package chaos

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAScriptIsTheRequestThatItSays(t *testing.T) {
	lines := [][]byte{[]byte("{}\n"), []byte("a longer one\n"), []byte("the last\n")}
	for _, chunked := range []bool{false, true} {
		s := inLines(request("/channel/c/batch", "application/x-ndjson", "X-Broker-Producer-ID", "p"), lines, chunked)
		r, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(s.bytes)))
		require.NoError(t, err)
		require.Equal(t, "/channel/c/batch", r.URL.Path)
		require.Equal(t, "p", r.Header.Get("X-Broker-Producer-ID"))
		body, err := io.ReadAll(r.Body)
		require.NoError(t, err)
		require.Equal(t, string(bytes.Join(lines, nil)), string(body))

		require.Len(t, s.ends, len(lines))
		for i, end := range s.ends {
			require.True(t, bytes.HasSuffix(s.bytes[:end], lines[i]), "%q", s.bytes[:end])
			require.Equal(t, i, s.sent(end-1), "its last byte is missing")
			require.Equal(t, i+1, s.sent(end))
		}
		require.Zero(t, s.sent(0))
		require.Equal(t, len(lines), s.sent(len(s.bytes)))
	}
}

func TestSequenceNumbersOfProcessesNeverMeet(t *testing.T) {
	last := int64(0)
	for _, role := range []string{"chaos-producer", "chaos-mortals", victims[singleVictim].role, victims[batchVictim].role,
		victims[pullVictim].role} {
		for _, start := range []int{1, 500, 1000} { // a day of faults kills no process more often, of victims 6000 each
			require.GreaterOrEqual(t, firstOf(role, start)-last, int64(victimIncarnation), "%s %d", role, start)
			last = firstOf(role, start)
		}
	}
	require.Less(t, firstOf(victims[pullVictim].role, 20_000), int64(1)<<(4*seqBytes))
}
