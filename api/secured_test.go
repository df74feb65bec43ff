package api

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/internal/feature/front"
	"github.com/penstock-broker/penstock/internal/test/certs"
	"github.com/penstock-broker/penstock/internal/tool/share"
)

// The ways to the API that package front adds.
var securedWays = []string{"http/1.1 over TLS", "h2 over TLS", "h2c"}

// A way sends requests through a front.
type way struct {
	scheme, protocol string
	client           *http.Client
}

// frontOf opens a front with a listener for TLS and one for h2c before the server of w, and returns the
// ways through it by name.
func frontOf(w *world) map[string]*way {
	authority, err := certs.NewAuthority()
	require.NoError(w.t, err)
	issued, err := authority.Issue(nil)
	require.NoError(w.t, err)
	cert, key, err := certs.PEM(issued)
	require.NoError(w.t, err)
	dir := w.t.TempDir()
	files := front.Files{Cert: filepath.Join(dir, "cert.pem"), Key: filepath.Join(dir, "key.pem")}
	require.NoError(w.t, os.WriteFile(files.Cert, cert, 0o600))
	require.NoError(w.t, os.WriteFile(files.Key, key, 0o600))
	o := front.Options{Serve: w.server.Serve, Streams: share.New(share.Options{Name: "streams", Most: 1000}),
		Log: slog.Default()}
	o.Certificates, err = front.Open(files)
	require.NoError(w.t, err)
	secure, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(w.t, err)
	plain, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(w.t, err)
	o.TLS, o.H2C = Listen(secure, nil), Listen(plain, nil)
	f := front.New(o)
	done := make(chan struct{})
	go func() {
		defer close(done)
		f.Run(context.Background())
	}()
	ways := map[string]*way{}
	for _, name := range securedWays {
		ways[name] = newWay(name, secure.Addr().String(), plain.Addr().String(), &tls.Config{RootCAs: authority.Pool(),
			ServerName: "127.0.0.1", MinVersion: tls.VersionTLS12})
	}
	w.t.Cleanup(func() {
		for _, y := range ways {
			y.client.CloseIdleConnections()
		}
		require.NoError(w.t, f.Shutdown(context.Background()))
		<-done
	})
	return ways
}

func newWay(name, secure, plain string, config *tls.Config) *way {
	var p http.Protocols
	y, address := &way{"https", "HTTP/1.1", nil}, secure
	switch name {
	case "http/1.1 over TLS":
		p.SetHTTP1(true)
	case "h2 over TLS":
		p.SetHTTP2(true)
		y.protocol = "HTTP/2.0"
	default:
		p.SetUnencryptedHTTP2(true)
		y.scheme, y.protocol, address = "http", "HTTP/2.0", plain
	}
	y.client = &http.Client{
		Transport: &http.Transport{Protocols: &p, TLSClientConfig: config, DisableCompression: true,
			DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, network, address)
			}},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return y
}

// do sends a request to the host broker.
func (y *way) do(t *testing.T, method, path, body string, headers []string, resp *fasthttp.Response) {
	t.Helper()
	path, query, _ := strings.Cut(path, "?")
	r := &http.Request{Method: method, URL: &url.URL{Scheme: y.scheme, Host: "broker", Opaque: path, RawQuery: query},
		Header: http.Header{"User-Agent": nil}, Host: "broker"}
	if body != "" || method == "POST" || method == "PUT" {
		r.Body, r.ContentLength = io.NopCloser(strings.NewReader(body)), int64(len(body))
		if body == "" {
			r.Body = http.NoBody
		}
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		if http.CanonicalHeaderKey(name) == "Host" {
			r.Host = value
			continue
		}
		r.Header.Add(name, value)
	}
	got, err := y.client.Do(r)
	require.NoError(t, err, "%s %s", method, path)
	defer got.Body.Close()
	require.Equal(t, y.protocol, got.Proto)
	text, err := io.ReadAll(got.Body)
	require.NoError(t, err)
	resp.SetStatusCode(got.StatusCode)
	for name, values := range got.Header {
		for _, v := range values {
			resp.Header.Add(name, v)
		}
	}
	resp.SetBody(text)
}

// Each route has the answers that it has over HTTP/1.1, byte for byte.
func TestAnswersOverHTTP2AndTLSAreTheStoredBytes(t *testing.T) {
	want, err := os.ReadFile(answersFile)
	require.NoError(t, err)
	for _, name := range securedWays {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil)
			w.via = frontOf(w)[name]
			var b strings.Builder
			known := map[string]string{}
			for _, e := range exchanges(w) {
				body := e.Body
				if body == "" {
					body = "\n"
				}
				fmt.Fprintf(&b, "%s\n%d %s\n%s\n", masked(e.path, known), e.Status, e.Header("Content-Type"), masked(body, known))
			}
			require.Equal(t, string(want), b.String())
		})
	}
}

// Refusals, bodies that are refused unread, and headers that the broker does not know are answered
// alike, with the same headers.
func TestRefusalsAreTheSameOverHTTP2AndTLS(t *testing.T) {
	w := newWorld(t, nil)
	w.channel()
	ways := frontOf(w)
	large := strings.Repeat("x", 9<<20)
	for _, c := range []struct {
		method, path, body string
		headers            []string
	}{
		{"GET", "/nothing", "", nil},
		{"GET", "/channel/none", "", nil},
		{"GET", "/channel/c?unknown=1", "", nil},
		{"PATCH", "/channel/c", "", nil},
		{"OPTIONS", "/channel/c", "", nil},
		{"HEAD", "/channel/c", "", nil},
		{"HEAD", "/livez", "", nil},
		{"GET", "/channel/c", "", []string{"Origin: https://evil.example"}},
		{"GET", "/channel/c", "", []string{"X-Broker-Channel-Tokn: x"}},
		{"GET", "/channel/c", "", []string{"X-Broker-Admin-Token: a", "X-Broker-Admin-Token: b"}},
		{"GET", "/channel/c", "", []string{"X-Long: " + strings.Repeat("h", 20<<10)}},
		{"PUT", "/channel/c", "name=%zz", []string{formHeader}},
		{"PUT", "/channel/c", large, []string{formHeader}},
		{"PUT", "/channel/c", "name=x", []string{formHeader, "Expect: 100-continue"}},
		{"PUT", "/channel/c", "name=x", []string{formHeader, "Content-Encoding: gzip"}},
		{"PUT", "/channel/c", "name=y", []string{formHeader, "If-Match: \"other\""}},
		{"GET", "/channel/c", large, nil},
		{"GET", "/", "", []string{"Accept: text/html"}},
		{"GET", "/ui/style.css", "", nil},
	} {
		said := func(r reply) string {
			text := fmt.Sprintln(r.Status, masked(strings.ReplaceAll(r.Body, r.Header("X-Request-ID"), "<request>"),
				map[string]string{}))
			for _, h := range []string{"Content-Type", "Content-Length", "Allow", "ETag", "Location", "Vary", "WWW-Authenticate",
				"Retry-After", "Cache-Control", "Content-Security-Policy", "X-Content-Type-Options"} {
				text += fmt.Sprintln(h, len(r.Header(h)), strings.ReplaceAll(r.Header(h), r.Header("X-Request-ID"), "<request>"))
			}
			return text
		}
		w.via = nil
		want := said(w.do(c.method, c.path, c.body, c.headers...))
		for name, y := range ways {
			w.via = y
			require.Equal(t, want, said(w.do(c.method, c.path, c.body, c.headers...)), "%s: %s %s", name, c.method, c.path)
		}
	}
}

// What the broker builds of its own address begins as the request did.
func TestTheBrokerKnowsThatAClientSpeaksTLS(t *testing.T) {
	w := newWorld(t, nil)
	w.channel()
	w.consumer("k", "pull")
	k := w.put("/channel/c/consumer/auto", "callbackUrl=https://x.example/&protocol=auto").is(201)
	require.Equal(t, "auto", k.json()["Protocol"])
	for name, y := range frontOf(w) {
		w.via = y
		link := w.do("POST", "/channel/c/consumer/k/portal-link", "", "X-Broker-Admin-Token: "+adminToken)
		require.Contains(t, link.json()["URL"], y.scheme+"://broker/", name)
		login := w.do("POST", "/ui/login", "token="+adminToken, formHeader, "Origin: "+y.scheme+"://broker",
			"Sec-Fetch-Site: same-origin")
		require.Equal(t, y.scheme == "https", strings.Contains(strings.ToLower(login.Header("Set-Cookie")), "secure"), name)
		w.do("POST", "/ui/login", "token="+adminToken, formHeader, "Origin: https://evil.example").is(403)
		w.get("/channel/c", "Host: evil.example").problem(403, "host_not_allowed")
	}
}
