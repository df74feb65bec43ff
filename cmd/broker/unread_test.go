package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/model/apitype"
)

// batchHead is the head of a batch request up to what says how long its body is.
const batchHead = "POST /channel/c/batch HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-ndjson\r\n" + rawTokens

// A body is sent in chunks, which no client library would do by itself in one go.
func chunkedBody(conn net.Conn) *chunkedWriter {
	return &chunkedWriter{bufio.NewWriterSize(conn, 64<<10)}
}

type chunkedWriter struct{ w *bufio.Writer }

func (c *chunkedWriter) Write(p []byte) (int, error) {
	fmt.Fprintf(c.w, "%x\r\n", len(p))
	_, _ = c.w.Write(p)
	_, err := c.w.WriteString("\r\n")
	return len(p), err
}

func (c *chunkedWriter) Close() error {
	_, _ = c.w.WriteString("0\r\n\r\n")
	return c.w.Flush()
}

// Most HTTP libraries send a request to its end before they read any of the answer.
func TestABatchClientMaySendEverythingBeforeItReads(t *testing.T) {
	parallel(t)
	plain := plainProgram(t) // half a million lines take minutes with the race detector
	for _, own := range []bool{false, true} {
		t.Run(fmt.Sprintf("own IDs %v", own), func(t *testing.T) {
			parallel(t)
			const lines = 250_000
			// Of lines that cannot be told apart every 2500th is one that can, and is refused.
			isMark := func(i int) bool { return !own && i%2500 == 1000 }
			w := embeddedWorld(t)
			w.program = plain
			p := w.start()
			p.sample()
			conn := p.dial()
			_, err := io.WriteString(conn, batchHead+"Transfer-Encoding: chunked\r\n\r\n")
			require.NoError(t, err)
			body := chunkedBody(conn)
			for i := range lines {
				line := `{"Payload":"p"}` + "\n"
				if own {
					line = fmt.Sprintf(`{"MessageID":"order-2026-01-31-%d","Payload":"p"}`+"\n", i)
				}
				if isMark(i) {
					line = fmt.Sprintf(`{"mark-%d":1}`+"\n", i)
				}
				_, err := body.Write([]byte(line))
				require.NoError(t, err, "line %d", i)
			}
			require.NoError(t, body.Close())
			heap := p.gauge(p.t, "go_memstats_heap_inuse_bytes")
			t.Logf("heap in use when everything is sent: %.0f MiB", heap/(1<<20))
			require.Less(t, heap, float64(256<<20))

			n := 0
			answer := readHTTP(t, conn)
			for scanner := bufio.NewScanner(answer); scanner.Scan(); n++ {
				var r apitype.BatchResult
				require.NoError(t, json.Unmarshal(scanner.Bytes(), &r))
				if isMark(n) {
					require.Equal(t, 400, r.Status)
					require.Contains(t, r.Detail, fmt.Sprintf(`"mark-%d"`, n))
					continue
				}
				require.Equal(t, 201, r.Status, r.Detail)
				if own {
					require.Equal(t, fmt.Sprintf("order-2026-01-31-%d", n), r.MessageID)
				}
				require.Equal(t, "/channel/c/message/"+r.MessageID, r.Location)
			}
			require.Equal(t, lines, n)

			// The connection is good for the next request.
			_, err = io.WriteString(conn, "GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
			require.NoError(t, err)
			require.Contains(t, readRaw(conn), "200 OK")
		})
	}
}

// readHTTP reads the head of an answer of status 200 and returns its body.
func readHTTP(t testing.TB, conn net.Conn) io.Reader {
	t.Helper()
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(t, err)
	require.Equal(t, 200, res.StatusCode)
	return res.Body
}
