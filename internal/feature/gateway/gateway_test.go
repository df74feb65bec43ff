package gateway

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/internal/model/problem"
	"github.com/penstock-broker/penstock/internal/tool/forwarded"
	"github.com/penstock-broker/penstock/internal/tool/share"
	"github.com/penstock-broker/penstock/internal/tool/signed"
)

var key = []byte("sixteen bytes...")

// serve returns the URL of a server behind a gateway, which answers with the body that it gets.
func serve(t *testing.T, g *Gateway) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := &fasthttp.Server{StreamRequestBody: true, MaxRequestBodySize: 1, Handler: func(rc *fasthttp.RequestCtx) {
		g.Handle(rc, func(rc *fasthttp.RequestCtx) {
			if stream := rc.RequestBodyStream(); stream != nil {
				body, _ := io.ReadAll(stream)
				rc.SetBody(body)
			}
		}, func(err error) {
			if stream := rc.RequestBodyStream(); stream != nil { // the API skips what is left of a body, or lingers
				_, _ = io.Copy(io.Discard, stream)
			}
			rc.SetConnectionClose()
			problem.Write(rc, err)
		})
	}}
	go func() { _ = s.Serve(l) }()
	t.Cleanup(func() { _ = s.Shutdown() })
	return "http://" + l.Addr().String()
}

func signature(at time.Time, body []byte) string {
	mac := hmac.New(sha256.New, key)
	fmt.Fprintf(mac, "%d.%s", at.Unix(), body)
	return fmt.Sprintf("t=%d,v1=%s", at.Unix(), hex.EncodeToString(mac.Sum(nil)))
}

func ask(t *testing.T, method, url, header string, body io.Reader) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, body)
	require.NoError(t, err)
	if header != "" {
		req.Header.Set(signed.Header, header)
	}
	res, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	return res.StatusCode, string(text)
}

func TestEachRequestNeedsASignatureOfItsBody(t *testing.T) {
	bodies := share.New(share.Options{Name: "bodies", Most: 1 << 20, Reserve: 1 << 17, Small: 1 << 14})
	g := &Gateway{Secret: key, Tolerance: signed.Tolerance, Exempt: []string{"/_status", "/open/"}, MaxBody: 1 << 17,
		Bodies: bodies, Now: time.Now}
	url, now := serve(t, g), time.Now()
	large := bytes.Repeat([]byte("x"), 100<<10)
	for name, c := range map[string]struct {
		path, header string
		body         []byte
		status       int
	}{
		"exempt":              {"/_status", "", nil, 200},
		"exempt with a body":  {"/open/x", "", large, 200},
		"through an exempt":   {"/open/../channel/c", "", nil, 401},
		"encoded":             {"/%6fpen/x", "", nil, 401},
		"none":                {"/channel/c/broadcast", "", []byte("x"), 401},
		"malformed":           {"/channel/c/broadcast", "v1=00", []byte("x"), 401},
		"of another body":     {"/channel/c/broadcast", signature(now, []byte("y")), []byte("x"), 403},
		"old":                 {"/channel/c/broadcast", signature(now.Add(-time.Hour), []byte("x")), []byte("x"), 403},
		"right":               {"/channel/c/broadcast", signature(now, []byte("x")), []byte("x"), 200},
		"right, large":        {"/channel/c/broadcast", signature(now, large), large, 200},
		"right, without body": {"/channels", signature(now, nil), nil, 200},
		"too large":           {"/channel/c/broadcast", signature(now, nil), bytes.Repeat(large, 2), 413},
	} {
		for _, chunked := range []bool{false, true} {
			method, body := http.MethodGet, io.Reader(nil)
			if c.body != nil {
				if method, body = http.MethodPost, bytes.NewReader(c.body); chunked {
					body = io.MultiReader(body) // of an unknown length
				}
			}
			status, text := ask(t, method, url+c.path, c.header, body)
			require.Equal(t, c.status, status, "%s: %s", name, text[:min(len(text), 200)])
			if status == 200 && !strings.HasPrefix(c.path, "/_") {
				require.Equal(t, string(c.body), text, name)
			}
		}
	}
	require.Eventually(t, func() bool { return bodies.Taken() == 0 }, time.Minute, time.Millisecond, "all is given back")
}

// A client that sends its body slowly holds what is its own, also behind a proxy, and nothing of the broker's.
func TestABodyIsThatOfItsClient(t *testing.T) {
	bodies := share.New(share.Options{Name: "bodies", Most: 1 << 20, Reserve: 1 << 17, Small: 1 << 14})
	proxies, err := forwarded.Parse([]string{"127.0.0.0/8"})
	require.NoError(t, err)
	url := serve(t, &Gateway{Secret: key, Tolerance: signed.Tolerance, MaxBody: 1 << 17, Bodies: bodies, Proxies: proxies,
		Now: time.Now})
	c, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	require.NoError(t, err)
	defer c.Close()
	_, err = fmt.Fprintf(c, "POST /x HTTP/1.1\r\nHost: b\r\n%s: v1=00\r\nX-Forwarded-For: 192.0.2.7\r\n"+
		"Content-Length: %d\r\n\r\n%s", signed.Header, 1<<17, strings.Repeat("x", 1<<16))
	require.NoError(t, err)
	slow := share.Address(netip.MustParseAddr("192.0.2.7"))
	require.Eventually(t, func() bool { return bodies.Held(slow) > 0 }, time.Minute, time.Millisecond)
	require.Zero(t, bodies.Held(share.Broker))
}

func TestNoGatewayDemandsNothing(t *testing.T) {
	status, text := ask(t, http.MethodPost, serve(t, nil)+"/x", "", strings.NewReader("body"))
	require.Equal(t, []any{200, "body"}, []any{status, text})
}
