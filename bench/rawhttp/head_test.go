package rawhttp

import (
	"bufio"
	"bytes"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

// FuzzParseHead checks that no bytes make the parser panic or read past the
// head, and that what it accepts with a length the standard library understands
// in the same way.
func FuzzParseHead(f *testing.F) {
	for _, s := range []string{
		"HTTP/1.1 201 Created\r\nContent-Length: 3\r\n\r\nabc",
		"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\n\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"HTTP/1.1 503\r\nRetry-After: 1\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n",
		"HTTP/1.1 200 OK\r\n: x\r\n\r\n", "HTTP/1.1 2", "\r\n\r\n", "HTTP/1.1 200\r\n\r\n",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		h, n, err := parseHead(b)
		if err != nil || n == 0 {
			return
		}
		require.LessOrEqual(t, n, len(b))
		require.True(t, bytes.HasSuffix(b[:n], headEnd))
		require.GreaterOrEqual(t, h.length, lengthUntilClose)
		res, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(b[:n])), nil)
		if err != nil {
			return // net/http is stricter about names and values
		}
		require.Equal(t, res.StatusCode, h.status)
		if res.ContentLength >= 0 && h.length >= 0 {
			require.Equal(t, res.ContentLength, int64(h.length))
		}
	})
}
