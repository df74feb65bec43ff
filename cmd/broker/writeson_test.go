package main

import (
	"bufio"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Each route that refuses a request before its body has come lets the client write on, and the client
// finds the answer when it comes to read.
func TestARefusalReachesAClientThatWritesOn(t *testing.T) {
	parallel(t)
	p := embeddedWorld(t).start("BROKER_BULK_MAX_SIZE=1MiB")
	s := p.stage(t, "k")
	const rest = 6 << 20 // more than any buffer of a connection
	form, bulk := "Content-Type: application/x-www-form-urlencoded\r\n", "Content-Type: text/csv\r\n"
	for name, c := range map[string]struct {
		line, headers string
		status        int
	}{
		"a body that is too large":   {"POST " + s.path("/broadcast"), rawTokens, 413},
		"no tokens":                  {"POST " + s.path("/broadcast"), "", 403},
		"a wrong token":              {"POST " + s.path("/broadcast"), strings.ReplaceAll(rawTokens, "p-token", "x"), 403},
		"a header that is unknown":   {"POST " + s.path("/broadcast"), rawTokens + "X-Broker-Colour: red\r\n", 400},
		"a request":                  {"POST " + s.path("/request"), rawTokens, 409},
		"a batch without tokens":     {"POST " + s.path("/batch"), "", 403},
		"a batch of another type":    {"POST " + s.path("/batch"), rawTokens + "Content-Type: image/png\r\n", 415},
		"a bulk that is too large":   {"POST " + s.path("/bulk"), rawTokens + bulk, 413},
		"a bulk with another coding": {"POST " + s.path("/bulk"), rawTokens + bulk + "Content-Encoding: br\r\n", 415},
		"a form that is too large":   {"PUT " + s.path(), form, 413},
		"a claim that is too large": {"POST " + s.path("/consumer/k/claim"),
			"X-Broker-Channel-Token: c-token\r\nX-Broker-Consumer-Token: k-token\r\n", 413},
		"a path that is unknown":     {"POST /nowhere", "", 404},
		"a method that is not there": {"PATCH " + s.path(), "", 405},
		"a channel that is unknown":  {"POST /channel/none/broadcast", rawTokens, 404},
	} {
		t.Run(name, func(t *testing.T) {
			conn := p.in(t).dial()
			_, err := io.WriteString(conn, c.line+" HTTP/1.1\r\nHost: b\r\n"+c.headers+"Content-Length: 6291456\r\n\r\n")
			require.NoError(t, err)
			piece := strings.Repeat("x", 64<<10)
			var answer *http.Response
			for written := 0; written < rest; written += len(piece) {
				_, err = io.WriteString(conn, piece)
				require.NoError(t, err, "after %d bytes", written)
				if answer == nil && written >= 1<<20 { // it is refused by now, and closed by a server that does not wait
					answer, err = http.ReadResponse(bufio.NewReader(conn), nil)
					require.NoError(t, err)
					require.Equal(t, c.status, answer.StatusCode)
				}
			}
		})
	}
}
