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
	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/internal/model/problem"
	"github.com/penstock-broker/penstock/internal/tool/intake"
	"github.com/penstock-broker/penstock/internal/tool/share"
)

// startServer serves h on loopback with the limits of NewServer.
func startServer(t *testing.T, h fasthttp.RequestHandler, change func(*fasthttp.Server)) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := NewServer(loaded(1<<20, h), ServerOptions{})
	if change != nil {
		change(s)
	}
	done := make(chan error, 1)
	go func() { done <- s.Serve(Listen(ln, nil)) }()
	t.Cleanup(func() {
		require.NoError(t, s.Shutdown())
		require.NoError(t, <-done)
	})
	return ln.Addr().String()
}

// loaded reads bodies of up to most bytes before h.
func loaded(most int, h fasthttp.RequestHandler) fasthttp.RequestHandler {
	body := intake.NewLimit(share.New(share.Options{Most: 1 << 30}), most)
	return func(rc *fasthttp.RequestCtx) {
		taken, err := body.Load(rc, share.Management(share.AddressOf(rc.RemoteAddr())))
		defer body.Drop(rc, taken)
		if err != nil {
			setRequestID(rc)
			problem.Write(rc, err)
			return
		}
		h(rc)
	}
}

// echo answers with how it read the request.
func echo(rc *fasthttp.RequestCtx) {
	fmt.Fprintf(rc, "%s %s %d", rc.Method(), rc.Request.URI().PathOriginal(), len(rc.PostBody()))
}

// raw sends bytes as they are and returns all answers until the server closes,
// or falls silent.
func raw(t *testing.T, addr, request string) []*http.Response {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	defer c.Close()
	_, err = io.WriteString(c, request)
	require.NoError(t, err)
	var answers []*http.Response
	r := bufio.NewReader(c)
	patience := 5 * time.Second // the machine is busy
	for ; ; patience = 500 * time.Millisecond {
		require.NoError(t, c.SetReadDeadline(time.Now().Add(patience)))
		answer, err := http.ReadResponse(r, nil)
		if err != nil {
			return answers
		}
		body, err := io.ReadAll(answer.Body)
		require.NoError(t, err)
		answer.Body = io.NopCloser(strings.NewReader(string(body)))
		answers = append(answers, answer)
	}
}

func requireProblem(t *testing.T, answer *http.Response, status int, code string) {
	t.Helper()
	body, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	require.Equal(t, status, answer.StatusCode, "%s", body)
	require.Equal(t, problem.ContentType, answer.Header.Get("Content-Type"))
	require.Contains(t, string(body), `"code":"`+code+`"`)
	require.NotEmpty(t, answer.Header.Get("X-Request-Id"))
	require.Contains(t, string(body), answer.Header.Get("X-Request-Id"))
}

func TestAmbiguousRequestsAreRefusedAndTheConnectionIsClosed(t *testing.T) {
	addr := startServer(t, echo, nil)
	smuggled := "GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n"
	for name, request := range map[string]string{
		"two different lengths": "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nContent-Length: 38\r\n\r\n" +
			smuggled,
		"two equal lengths": "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nContent-Length: 0\r\n\r\n" +
			smuggled,
		"length and chunks": "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: " +
			"chunked\r\n\r\n0\r\n\r\n" + smuggled,
		"chunks and length": "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nContent-Length: " +
			"5\r\n\r\n0\r\n\r\n" + smuggled,
		"two transfer encodings": "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: " +
			"identity\r\n\r\n0\r\n\r\n" + smuggled,
		"an unknown transfer encoding": "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n" +
			smuggled,
		"a negative length": "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n" + smuggled,
		"a signed length":   "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: +0\r\n\r\n" + smuggled,
		"a length that overflows": "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 18446744073709551616\r\n\r\n" +
			smuggled,
		"blank before the colon":        "POST / HTTP/1.1\r\nHost: x\r\nContent-Length : 38\r\n\r\n" + smuggled,
		"a folded header":               "POST / HTTP/1.1\r\nHost: x\r\nX-A: b\r\n Content-Length: 38\r\n\r\n" + smuggled,
		"a header ended by LF alone":    "POST / HTTP/1.1\r\nHost: x\nContent-Length: 0\r\n\r\n" + smuggled,
		"headers ended by LF alone":     "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 0\n\n" + smuggled,
		"a CR inside a header":          "POST / HTTP/1.1\r\nHost: x\r\nX-A: b\rContent-Length: 38\r\n\r\n" + smuggled,
		"a NUL in a header name":        "POST / HTTP/1.1\r\nHost: x\r\nX\x00A: b\r\n\r\n" + smuggled,
		"a header line without a colon": "POST / HTTP/1.1\r\nHost: x\r\nnonsense\r\n\r\n" + smuggled,
		"no host":                       "POST / HTTP/1.1\r\nContent-Length: 0\r\n\r\n" + smuggled,
		"two hosts":                     "POST / HTTP/1.1\r\nHost: x\r\nHost: y\r\nContent-Length: 0\r\n\r\n" + smuggled,
		"a bad chunk size": "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: " +
			"chunked\r\n\r\nzz\r\nab\r\n0\r\n\r\n" + smuggled,
		"a huge chunk size": "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: " +
			"chunked\r\n\r\nfffffffffffffffff\r\nab\r\n0\r\n\r\n" + smuggled,
		"a chunk without its end": "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: " +
			"chunked\r\n\r\n1\r\nabc\r\n0\r\n\r\n" + smuggled,
		"chunk lines ended by LF alone": "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1\na\n0\n\n" +
			smuggled,
		"no HTTP at all":             "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n" + smuggled,
		"a version that is none":     "POST / HTTP/one\r\nHost: x\r\n\r\n" + smuggled,
		"a request line of one word": "POST\r\nHost: x\r\n\r\n" + smuggled,
		"HTTP/0.9":                   "GET /\r\n\r\n" + smuggled,
	} {
		t.Run(name, func(t *testing.T) {
			requireRefusedAlone(t, addr, request)
		})
	}
}

func TestABodyOfAGETIsReadAsItsBody(t *testing.T) {
	addr := startServer(t, echo, nil)
	smuggled := "GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n"
	answers := raw(t, addr, fmt.Sprintf("GET /a HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%sGET /b "+
		"HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", len(smuggled), smuggled))
	require.Len(t, answers, 2)
	for i, want := range []string{fmt.Sprintf("GET /a %d", len(smuggled)), "GET /b 0"} {
		body, err := io.ReadAll(answers[i].Body)
		require.NoError(t, err)
		require.Equal(t, want, string(body))
	}
}

func TestTooLargeBodiesGet413AlsoWhileTheClientIsStillSending(t *testing.T) {
	addr := startServer(t, echo, nil)
	for range 20 {
		answer, err := http.Post("http://"+addr+"/x", "text/plain", strings.NewReader(strings.Repeat("x", 8<<20)))
		require.NoError(t, err, "the answer must not be lost in a reset")
		requireProblem(t, answer, 413, "body_too_large")
		answer.Body.Close()
	}
	// Without a length, as a stream of chunks.
	answer, err := http.Post("http://"+addr+"/x", "text/plain",
		io.LimitReader(strings.NewReader(strings.Repeat("x", 3<<20)), 3<<20))
	require.NoError(t, err)
	requireProblem(t, answer, 413, "body_too_large")
	answer.Body.Close()
}

func TestTheLargestBodyIsAccepted(t *testing.T) {
	addr := startServer(t, echo, nil)
	answer, err := http.Post("http://"+addr+"/x", "multipart/form-data; boundary=b",
		strings.NewReader(strings.Repeat("x", 1<<20)))
	require.NoError(t, err)
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	require.Equal(t, "POST /x 1048576", string(body))
}

func TestTooLargeHeadersGet431(t *testing.T) {
	addr := startServer(t, echo, nil)
	for name, request := range map[string]string{
		"one header":   "GET / HTTP/1.1\r\nHost: x\r\nX-A: " + strings.Repeat("a", 20<<10) + "\r\n\r\n",
		"many headers": "GET / HTTP/1.1\r\nHost: x\r\n" + strings.Repeat("X-A: b\r\n", 4<<10) + "\r\n",
		"a long path":  "GET /" + strings.Repeat("a", 20<<10) + " HTTP/1.1\r\nHost: x\r\n\r\n",
		"endless":      "GET / HTTP/1.1\r\nHost: x\r\nX-A: " + strings.Repeat("a", 100<<10),
	} {
		t.Run(name, func(t *testing.T) {
			answers := raw(t, addr, request)
			require.Len(t, answers, 1)
			requireProblem(t, answers[0], 431, "header_too_large")
		})
	}
}

func TestARequestThatDoesNotArriveInTimeGets408(t *testing.T) {
	addr := startServer(t, echo, func(s *fasthttp.Server) { s.ReadTimeout = 100 * time.Millisecond })
	for name, request := range map[string]string{
		"half a header": "POST / HTTP/1.1\r\nHost: x\r\nX-",
		"half a body":   "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nhalf",
	} {
		t.Run(name, func(t *testing.T) {
			answers := raw(t, addr, request)
			require.Len(t, answers, 1)
			requireProblem(t, answers[0], 408, "request_timeout")
		})
	}
}

// The read timeout is that of a head: a body that comes, slowly, gets more.
func TestALargeBodyMayTakeLongerThanTheReadTimeout(t *testing.T) {
	const timeout, pieces, piece = time.Second, 8, 100 << 10
	addr := startServer(t, echo, func(s *fasthttp.Server) { s.ReadTimeout = timeout })
	c, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	defer c.Close()
	_, err = fmt.Fprintf(c, "POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n", pieces*piece)
	require.NoError(t, err)
	for i := range pieces {
		if i > 0 {
			time.Sleep(timeout / 4)
		}
		_, err = c.Write(make([]byte, piece))
		require.NoError(t, err)
	}
	answer, err := http.ReadResponse(bufio.NewReader(c), nil)
	require.NoError(t, err)
	body, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	require.Equal(t, fmt.Sprintf("POST /a %d", pieces*piece), string(body))
}

func TestPipelinedRequestsAreAnsweredInOrder(t *testing.T) {
	addr := startServer(t, echo, nil)
	answers := raw(t, addr, "POST /1 HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabcPOST /2 HTTP/1.1\r\nHost: "+
		"x\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\nGET /3 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
	require.Len(t, answers, 3)
	for i, want := range []string{"POST /1 3", "POST /2 2", "GET /3 0"} {
		body, err := io.ReadAll(answers[i].Body)
		require.NoError(t, err)
		require.Equal(t, want, string(body))
		require.Empty(t, answers[i].Header.Get("Server"))
		require.Empty(t, answers[i].Header.Get("Content-Type"), "a handler that names no type sends none")
	}
}

// requireRefusedAlone sends a request with another one behind it: the first is
// refused as not well formed, and nothing after it is read as a request.
func requireRefusedAlone(t *testing.T, addr, request string) {
	t.Helper()
	answers := raw(t, addr, request)
	require.Len(t, answers, 1, "nothing after it is read as a request")
	requireProblem(t, answers[0], 400, "bad_request")
	require.True(t, answers[0].Close)
}
