package egress

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"
)

func TestSloppyHeadsAreReadOrRefusedAtOnce(t *testing.T) {
	large := "Set-Cookie: a=" + strings.Repeat("x", 17_000) + "\r\n"
	for name, tc := range map[string]struct {
		answer string
		status int   // 0: refused
		err    error // of a refusal
		body   string
	}{
		"large headers": {"HTTP/1.1 200 OK\r\n" + large + "Content-Length: 2\r\n\r\nok", 200, nil, "ok"},
		"many headers": {"HTTP/1.1 201 OK\r\n" + strings.Repeat("X-A: 0123456789\r\n", 1000) +
			"Content-Length: 2\r\n\r\nok", 201, nil, "ok"},
		"headers beyond the bound":  {"HTTP/1.1 200 OK\r\n" + strings.Repeat(large, 4) + "\r\n", 0, errHeadSize, ""},
		"a header beyond the bound": {"HTTP/1.1 200 OK\r\nX-A: " + strings.Repeat("x", maxHeadBytes), 0, errHeadSize, ""},
		"equal lengths": {"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-A: b\r\ncontent-length: 2\r\n\r\nok", 200,
			nil, "ok"},
		"a list of equal lengths": {"HTTP/1.1 200 OK\r\nContent-Length: 2, 2\r\n\r\nok", 200, nil, "ok"},
		"different lengths": {"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nok", 0,
			errLengths, ""},
		"a list of different lengths": {"HTTP/1.1 200 OK\r\nContent-Length: 2,3\r\n\r\nok", 0, errLengths, ""},
		"a length that is none":       {"HTTP/1.1 200 OK\r\nContent-Length: two\r\n\r\nok", 0, errLength, ""},
		"a length with a sign":        {"HTTP/1.1 200 OK\nContent-Length: +2\n\nok", 0, errLength, ""},
		"identity": {"HTTP/1.1 200 OK\r\nTransfer-Encoding: identity\r\nContent-Length: 2\r\n\r\nok", 200,
			nil, "ok"},
		"chunked, twice": {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\ntransfer-encoding: " +
			"Chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", 200, nil, "ok"},
		"another transfer coding": {"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", 0,
			errTransfer, ""},
		"another one, LF alone": {"HTTP/1.1 200 OK\nTransfer-Encoding: gzip\n\nok", 0, errTransfer, ""},
		"LF alone":              {"HTTP/1.1 200 OK\nContent-Length: 2\nX-A: b\n\nok", 200, nil, "ok"},
		"LF alone, and CRLF":    {"HTTP/1.1 200 OK\r\nContent-Length: 2\n\r\nok", 200, nil, "ok"},
		"CRLF, and LF alone":    {"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\nok", 200, nil, "ok"},
		"LF alone, chunks": {"HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n\n2\r\nok\r\n0\r\n\r\n", 200,
			nil, "ok"},
		"LF alone and equal lengths": {"HTTP/1.0 500 No\nContent-Length: 2\nContent-Length: 2\n\nno", 500, nil, "no"},
		"LF alone after an interim": {"HTTP/1.1 103 Early\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\nContent-Length: 2\n\nok",
			200, nil, "ok"},
		"an interim with LF alone": {"HTTP/1.1 103 Early\nLink: </a>\n\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
			200, nil, "ok"},
		"a large interim": {"HTTP/1.1 103 Early\r\n" + large +
			"\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", 200, nil, "ok"},
		"blank lines before":           {"\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", 200, nil, "ok"},
		"interim answers for ever":     {strings.Repeat("HTTP/1.1 102 Processing\r\n\r\n", maxInterim+1), 0, errInterim, ""},
		"no status after an interim":   {"HTTP/1.1 103 Early\r\n\r\nHTTP/1.1 000 No\r\n\r\n", 0, errNotHTTP, ""},
		"a header without a name":      {"HTTP/1.1 200 OK\r\n: b\r\n\r\n", 0, errHeader, ""},
		"a line that is no header":     {"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncannot parse\r\n\r\nok", 0, errHeader, ""},
		"no answer of HTTP":            {"HTTP/1.1 two hundred\r\nContent-Length: 2\r\n\r\nok", 0, errNotHTTP, ""},
		"no head ends, and the end is": {"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n", 0, ErrNoAnswer, ""},
	} {
		t.Run(name, func(t *testing.T) {
			closes := strings.HasPrefix(name, "no head")
			srv := answering(t, func(conn net.Conn, _ int) bool {
				_, _ = conn.Write([]byte(tc.answer))
				return !closes // a server that waits: what is refused is refused by what came
			})
			c := client(t)
			for range 2 {
				r := post(t, c, srv.url(), "", "x", 20*time.Second)
				require.NotErrorIs(t, r.Err, ErrTimeout)
				require.Less(t, r.Took, 10*time.Second)
				require.True(t, r.Sent)
				if tc.err != nil {
					require.ErrorIs(t, r.Err, tc.err)
					require.Zero(t, r.Status)
					continue
				}
				require.NoError(t, r.Err)
				require.Equal(t, tc.status, r.Status)
				require.Equal(t, tc.body, string(r.Answer))
			}
			require.EqualValues(t, 2, srv.requests.Load())
		})
	}
}

func TestChunksThatAreMalformedAreNamed(t *testing.T) {
	for name, chunks := range map[string]string{"LF alone": "2\nok\n0\n\n", "a size that is none": "zz\r\nok\r\n0\r\n\r\n",
		"a longer chunk": "1\r\nok\r\n0\r\n\r\n"} {
		t.Run(name, func(t *testing.T) {
			srv := answering(t, func(conn net.Conn, _ int) bool {
				_, _ = conn.Write([]byte("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks))
				return true
			})
			r := post(t, client(t), srv.url(), "", "x", 20*time.Second)
			require.ErrorIs(t, r.Err, errChunks)
			require.Equal(t, "the chunks of the answer are malformed", Say(r.Err))
			require.Equal(t, 200, r.Status)
		})
	}
}

func TestAMendedAnswerIsKeptToo(t *testing.T) {
	srv := saying(t, "HTTP/1.1 200 OK\nX-A: b\nContent-Length: 2\nContent-Length: 2\nLocation: /x\n\nok")
	target, err := client(t).Target(ToConsumers, srv.url(), "")
	require.NoError(t, err)
	req := fasthttp.AcquireRequest()
	defer fasthttp.ReleaseRequest(req)
	r := target.PostKeeping(req, 10*time.Second, &Keep{Bytes: 10, Headers: func(name string) bool {
		return name == "X-A"
	}})
	require.NoError(t, r.Err)
	require.Equal(t, "X-A:b\n ok /x", fmt.Sprintf("%s %s %s", r.Response.Headers, r.Response.Body, r.Response.Location))
}
