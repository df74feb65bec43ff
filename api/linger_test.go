package api

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/internal/model/problem"
)

// A client that is still writing when its request is refused may write on: the connection is not
// reset under it, which most clients would report instead of the answer.
func TestARefusedClientMayWriteTheRestOfItsRequest(t *testing.T) {
	addr := startServer(t, echo, nil)
	refuses := startServerOf(t, func(rc *fasthttp.RequestCtx) {
		problem.Write(rc, problem.New(401, "unauthorized", "No."))
	})
	const rest = 8 << 20
	long := fmt.Sprintf("Content-Length: %d\r\n\r\nx", rest+1)
	for name, c := range map[string]struct {
		addr, head, piece string
		status            int
	}{
		"a body that is too large":      {addr, "POST /a HTTP/1.1\r\nHost: x\r\n" + long, "x", 413},
		"a body whose route refuses it": {refuses, "POST /a HTTP/1.1\r\nHost: x\r\n" + long, "x", 401},
		"chunks that are too many": {refuses, "POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" +
			chunks(80<<10), chunks(1), 401},
		"a head that is too large": {addr, "GET / HTTP/1.1\r\nHost: x\r\nX-A: " + strings.Repeat("a", 20<<10), "a",
			431},
		"a header that is not well-formed": {addr, "POST /a HTTP/1.1\r\nHost: x\r\nX-A : a\r\n" + long, "x", 400},
		"a length that is none":            {addr, "POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: x\r\n\r\n", "x", 400},
		"a coding that the server knows not": {addr, "POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n\r\n", "x",
			400},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conn, err := net.Dial("tcp", c.addr)
			require.NoError(t, err)
			defer conn.Close()
			_, err = io.WriteString(conn, c.head)
			require.NoError(t, err)
			r := bufio.NewReader(conn)
			answer, err := http.ReadResponse(r, nil)
			require.NoError(t, err)
			_, err = io.Copy(io.Discard, answer.Body)
			require.NoError(t, err)
			require.Equal(t, c.status, answer.StatusCode)
			piece := strings.Repeat(c.piece, 1<<10)
			for written := 0; written < rest; written += len(piece) {
				_, err = io.WriteString(conn, piece)
				require.NoError(t, err, "after %d bytes", written)
			}
			_, err = r.ReadByte()
			require.ErrorIs(t, err, io.EOF, "the answer has ended")
			require.NoError(t, conn.(*net.TCPConn).CloseWrite())
		})
	}
}

func chunks(n int) string { return strings.Repeat("1\r\nx\r\n", n) }

// startServerOf is startServer with a handler that reads no body.
func startServerOf(t *testing.T, h fasthttp.RequestHandler) string {
	return startServer(t, nil, func(s *fasthttp.Server) { s.Handler = NewServer(h, ServerOptions{}).Handler })
}

// What lingers has bounds: a client that goes on and on is cut off, and one that says no more is let go.
func TestAConnectionLingersWithinBounds(t *testing.T) {
	addr := startServer(t, echo, nil)
	conn, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	defer conn.Close()
	_, err = io.WriteString(conn, "POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 900000000000\r\n\r\n")
	require.NoError(t, err)
	piece := make([]byte, 1<<20)
	written := 0
	for err == nil && written < 10*maxLingeredBytes {
		var n int
		n, err = conn.Write(piece)
		written += n
	}
	require.Error(t, err)
	require.GreaterOrEqual(t, written, maxLingeredBytes)
}

// A connection that lingers gives its place to a new one of its address.
func TestAConnectionThatLingersGoesFirst(t *testing.T) {
	h := newHall(t, 3)
	for range 40 {
		conn := h.dial("127.0.0.1", "POST /nowhere HTTP/1.1\r\nHost: broker\r\nContent-Length: 900000000000\r\n\r\nx")
		answer, err := http.ReadResponse(conn.Reader, nil)
		require.NoError(t, err)
		require.Equal(t, 404, answer.StatusCode)
		_, err = io.Copy(io.Discard, answer.Body)
		require.NoError(t, err)
		require.Zero(t, h.places.late.Taken())
		_, err = conn.ReadByte()
		require.ErrorIs(t, err, io.EOF)
	}
}
