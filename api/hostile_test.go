package api

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/ident"
)

// Header blocks that a stricter proxy reads in another way than fasthttp does.
func TestHeadersThatProxiesReadInAnotherWayAreRefused(t *testing.T) {
	addr := startServer(t, echo, nil)
	smuggled := "GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n"
	for name, lines := range map[string]string{
		"the identity coding":                   "Transfer-Encoding: identity\r\n",
		"a coding in quotes":                    "Transfer-Encoding: \"chunked\"\r\n",
		"a list of codings":                     "Transfer-Encoding: gzip, chunked\r\n",
		"chunked twice":                         "Transfer-Encoding: chunked, chunked\r\n",
		"an empty coding":                       "Transfer-Encoding:\r\n",
		"a vertical tab before the coding":      "Transfer-Encoding: \x0bchunked\r\n",
		"a blank inside a name":                 "X A: b\r\n",
		"a blank after the name of a length":    "Content-Length X: 38\r\n",
		"a name in two words with the coding":   "Transfer-Encoding X: chunked\r\n",
		"a blank before the first name":         " X-A: b\r\n",
		"a NUL in a value":                      "X-A: b\x00c\r\n",
		"a length with a NUL":                   "Content-Length: 0\x00\r\n",
		"a length with an underscore":           "Content-Length: 3_8\r\n",
		"an empty length":                       "Content-Length:\r\n",
		"a length in hexadecimal":               "Content-Length: 0x26\r\n",
		"a length as a float":                   "Content-Length: 38.0\r\n",
		"an escape character in a value":        "X-A: \x1b[2J\r\n",
		"a delete character in a value":         "X-A: a\x7fb\r\n",
		"a length that is folded":               "Content-Length:\r\n 38\r\n",
		"a coding that is folded":               "Transfer-Encoding:\r\n\tchunked\r\n",
		"a name that begins with a colon":       ": x\r\n",
		"a name with a quote":                   "X\"A: b\r\n",
		"a name with a high byte":               "X\xff: b\r\n",
		"a length of two numbers":               "Content-Length: 0 38\r\n",
		"a form feed after the length":          "Content-Length: 0\x0c\r\n",
		"a carriage return as the end of lines": "X-A: b\rTransfer-Encoding: chunked\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			requireRefusedAlone(t, addr, "POST / HTTP/1.1\r\nHost: x\r\n"+lines+"\r\n"+smuggled)
		})
	}
}

// HTTP/1.0 knows no chunks: what follows such a head belongs to nobody.
func TestOldAndFutureVersionsEndTheirConnection(t *testing.T) {
	addr := startServer(t, echo, nil)
	smuggled := "GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n"
	for name, request := range map[string]string{
		"HTTP/1.0 in chunks":        "POST / HTTP/1.0\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + smuggled,
		"HTTP/1.0":                  "GET / HTTP/1.0\r\n\r\n" + smuggled,
		"the preface of HTTP/2":     "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + smuggled,
		"a version there is not":    "GET / HTTP/1.9\r\nHost: x\r\n\r\n" + smuggled,
		"a version of two digits":   "GET / HTTP/11.1\r\nHost: x\r\n\r\n" + smuggled,
		"a version in lower case":   "GET / http/1.1\r\nHost: x\r\n\r\n" + smuggled,
		"a target of two words":     "GET /a b HTTP/1.1\r\nHost: x\r\n\r\n" + smuggled,
		"a target with a NUL":       "GET /a\x00b HTTP/1.1\r\nHost: x\r\n\r\n" + smuggled,
		"a target that is relative": "GET a HTTP/1.1\r\nHost: x\r\n\r\n" + smuggled,
		"a method with a control":   "G\x01T / HTTP/1.1\r\nHost: x\r\n\r\n" + smuggled,
	} {
		t.Run(name, func(t *testing.T) {
			answers := raw(t, addr, request)
			require.LessOrEqual(t, len(answers), 1)
			for _, a := range answers {
				body, err := io.ReadAll(a.Body)
				require.NoError(t, err)
				require.NotContains(t, string(body), "smuggled")
				require.True(t, a.Close, "%d %s", a.StatusCode, body)
			}
		})
	}
}

// A request whose body was cut short must not be carried out with what came of
// it: half a token is a token too.
func TestABodyThatIsCutShortChangesNothing(t *testing.T) {
	w := newWorld(t, nil)
	addr := startServer(t, w.api.Handler, nil)
	for name, request := range map[string]string{
		"a length": "PUT /producer/cut HTTP/1.1\r\nHost: x\r\nContent-Type: " + formType +
			"\r\nContent-Length: 100\r\n\r\nname=n&token=half-of-a-",
		"chunks": "PUT /producer/cut HTTP/1.1\r\nHost: x\r\nContent-Type: " + formType +
			"\r\nTransfer-Encoding: chunked\r\n\r\n64\r\nname=n&token=half-of-a-",
		"no end": "PUT /producer/cut HTTP/1.1\r\nHost: x\r\nContent-Type: " + formType +
			"\r\nTransfer-Encoding: chunked\r\n\r\n6\r\nname=n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			c, err := net.Dial("tcp", addr)
			require.NoError(t, err)
			defer c.Close()
			_, err = io.WriteString(c, request)
			require.NoError(t, err)
			require.NoError(t, c.(*net.TCPConn).CloseWrite())
			require.NoError(t, c.SetReadDeadline(time.Now().Add(time.Minute)))
			answer, err := http.ReadResponse(bufio.NewReader(c), nil)
			require.NoError(t, err)
			requireProblem(t, answer, 400, "bad_request")
			require.True(t, answer.Close)
			w.get("/producer/cut").problem(404, "producer_not_found")
		})
	}
}

// A client that stops sending when it has said everything is answered.
func TestAWholeRequestOfAClientThatStopsSendingIsServed(t *testing.T) {
	addr := startServer(t, echo, nil)
	for request, want := range map[string]string{
		"GET /a HTTP/1.1\r\nHost: x\r\n\r\n":                                                     "GET /a 0",
		"GET /a HTTP/1.0\r\n\r\n":                                                                "GET /a 0",
		"POST /a HTTP/1.1\r\nHost: x\r\n\r\n":                                                    "POST /a 0",
		"POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc":                            "POST /a 3",
		"POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n": "POST /a 3",
	} {
		c, err := net.Dial("tcp", addr)
		require.NoError(t, err)
		_, err = io.WriteString(c, request)
		require.NoError(t, err)
		require.NoError(t, c.(*net.TCPConn).CloseWrite())
		require.NoError(t, c.SetReadDeadline(time.Now().Add(time.Minute)))
		answer, err := http.ReadResponse(bufio.NewReader(c), nil)
		require.NoError(t, err)
		body, err := io.ReadAll(answer.Body)
		require.NoError(t, err)
		require.Equal(t, want, string(body))
		require.NoError(t, c.Close())
	}
}

// What a proxy removed from the head of a request must not come back behind its
// body: a trailer is no header.
func TestATrailerIsNoHeader(t *testing.T) {
	w := newWorld(t, func(o *Options) { o.OpenManagement = false })
	addr := startServer(t, w.api.Handler, nil)
	answers := raw(t, addr, "PUT /producer/p HTTP/1.1\r\nHost: x\r\nContent-Type: "+formType+
		"\r\nTransfer-Encoding: chunked\r\n\r\n6\r\nname=n\r\n0\r\n"+adminHeader+"\r\n\r\n")
	require.Len(t, answers, 1)
	requireProblem(t, answers[0], 401, "token_missing")
}

// Whoever holds no token of the channel learns nothing about its messages.
func TestReTriggerTellsStrangersNothingAboutMessages(t *testing.T) {
	w := newWorld(t, nil)
	w.channel()
	k := w.consumer("k", "push")
	m := w.insert(durable.Message{Key: "m"})
	w.kill(k, m)
	stranger := "X-Broker-Consumer-Token: guess"
	var seen []string
	for _, path := range []string{
		retriggerPath(m, m.ID.Job(0)), "/channel/c/message/none/job/" + m.ID.Job(0).String() + "/re-trigger", retriggerPath(m,
			w.ids.Next().Job(0)),
		retriggerPath(m, m.ID.Job(1)), retriggerPath(m, m.ID.Job(60000)), retriggerPath(m,
			m.ID), "/channel/c/message/m/job/nonsense/re-trigger",
		retriggerPath(m, ident.ID{}),
	} {
		r := w.post(path, stranger).problem(403, "consumer_token_mismatch")
		seen = append(seen, strings.ReplaceAll(r.Body, r.Header("X-Request-ID"), ""))
	}
	for _, body := range seen {
		require.Equal(t, seen[0], body)
	}
	consumer := tokens("k")[1]
	w.post("/channel/c/message/none/job/"+m.ID.Job(0).String()+"/re-trigger", consumer).problem(404, "message_not_found")
	w.post(retriggerPath(m, w.ids.Next().Job(0)), consumer).problem(404, "job_not_found")
	w.post(retriggerPath(m, m.ID.Job(0)), consumer).is(202)
}

func TestManyQueryParametersAndHeadersCostNothing(t *testing.T) {
	w := newWorld(t, nil)
	addr := startServer(t, w.api.Handler, nil)
	many := func(n int, f string) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, f, i)
		}
		return b.String()
	}
	for name, tc := range map[string]struct {
		head   string
		status int
	}{
		"1000 parameters":   {"GET /producers?" + many(1000, "p%d=v&") + "size=1 HTTP/1.1\r\nHost: localhost\r\n", 400},
		"8000 parameters":   {"GET /producers?" + strings.Repeat("&", 8000) + " HTTP/1.1\r\nHost: localhost\r\n", 200},
		"100000 parameters": {"GET /producers?" + many(100_000, "p%d=v&") + " HTTP/1.1\r\nHost: localhost\r\n", 431},
		"500 headers":       {"GET /producers HTTP/1.1\r\nHost: localhost\r\n" + many(500, "X-%d: v\r\n"), 200},
		"100000 headers":    {"GET /producers HTTP/1.1\r\nHost: localhost\r\n" + many(100_000, "X-%d: v\r\n"), 431},
		"a path of 1 MiB":   {"GET /" + strings.Repeat("a/", 512<<10) + " HTTP/1.1\r\nHost: localhost\r\n", 431},
	} {
		t.Run(name, func(t *testing.T) {
			answers := raw(t, addr, tc.head+"\r\n")
			require.Len(t, answers, 1)
			require.Equal(t, tc.status, answers[0].StatusCode)
		})
	}
}
