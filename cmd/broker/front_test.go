package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/test/certs"
)

// A fronted is a broker with listeners of TLS and of h2c.
type fronted struct {
	*process
	secure, plain string
	authority     *certs.Authority
}

func (w *world) startFronted(env ...string) *fronted {
	authority, err := certs.NewAuthority()
	require.NoError(w.t, err)
	return w.startFrontedBy(authority, env...)
}

// startFrontedBy is startFronted with the authority of its certificate.
func (w *world) startFrontedBy(authority *certs.Authority, env ...string) *fronted {
	f := &fronted{secure: freeAddr(w.t), plain: freeAddr(w.t), authority: authority}
	issued, err := f.authority.Issue(nil)
	require.NoError(w.t, err)
	cert, key, err := certs.PEM(issued)
	require.NoError(w.t, err)
	dir := w.t.TempDir()
	for name, text := range map[string][]byte{"cert.pem": cert, "key.pem": key} {
		require.NoError(w.t, os.WriteFile(filepath.Join(dir, name), text, 0o600))
	}
	f.process = w.start(append(env, "BROKER_TLS_LISTEN="+f.secure, "BROKER_TLS_CERT="+filepath.Join(dir, "cert.pem"),
		"BROKER_TLS_KEY="+filepath.Join(dir, "key.pem"), "BROKER_H2C_LISTEN="+f.plain)...)
	return f
}

// client returns a client of HTTP/2 with or without TLS, or of HTTP/1.1 with it.
func (f *fronted) client(secure, two bool) (*http.Client, string) {
	var p http.Protocols
	p.SetHTTP1(!two)
	p.SetHTTP2(two && secure)
	p.SetUnencryptedHTTP2(two && !secure)
	transport := &http.Transport{Protocols: &p, TLSClientConfig: &tls.Config{RootCAs: f.authority.Pool(),
		MinVersion: tls.VersionTLS12}}
	f.t.Cleanup(transport.CloseIdleConnections)
	if secure {
		return &http.Client{Transport: transport}, "https://" + f.secure
	}
	return &http.Client{Transport: transport}, "http://" + f.plain
}

// ask sends a request with the tokens of the sample, and returns status and body.
func ask(t *testing.T, ctx context.Context, c *http.Client, method, url, body string) (int, string, error) {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	require.NoError(t, err)
	for line := range strings.Lines(rawTokens) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		r.Header.Set(name, value)
	}
	for i, tokens := 0, consumerTokens("k"); i+1 < len(tokens); i += 2 {
		r.Header.Set(tokens[i], tokens[i+1])
	}
	got, err := c.Do(r)
	if err != nil {
		return 0, "", err
	}
	defer got.Body.Close()
	text, err := io.ReadAll(got.Body)
	return got.StatusCode, string(text), err
}

// Messages are published and claimed on each listener, a claim that waits is given up with its client,
// and a broker that stops ends what waits there.
func TestABrokerServesHTTP2AndTLS(t *testing.T) {
	parallel(t)
	f := embeddedWorld(t).startFronted()
	f.sample("k")
	for _, way := range []struct{ secure, two bool }{{true, true}, {true, false}, {false, true}} {
		c, base := f.client(way.secure, way.two)
		status, text, err := ask(t, t.Context(), c, "POST", base+"/channel/c/broadcast", "hello")
		require.NoError(t, err)
		require.Equal(t, 201, status, text)
		eventually(t, "the job is claimed", func() bool {
			status, text, err = ask(t, t.Context(), c, "POST", base+"/channel/c/consumer/k/claim?limit=1&wait=1s", "")
			require.NoError(t, err)
			require.Less(t, status, 300, text)
			return strings.Contains(text, "hello") || strings.Contains(text, "aGVsbG8")
		})
		ctx, leave := context.WithCancel(t.Context())
		gone := make(chan struct{})
		go func() {
			defer close(gone)
			_, _, _ = ask(t, ctx, c, "POST", base+"/channel/c/consumer/k/claim?limit=1&wait=20s", "")
		}()
		eventually(t, "the claim waits", func() bool { return f.gauge(t, `penstock_share_held{bound="waiters"}`) == 1 })
		leave()
		<-gone
		eventually(t, "it is given up", func() bool { return f.gauge(t, `penstock_share_held{bound="waiters"}`) == 0 })
	}
	eventually(t, "no stream is left", func() bool { return f.gauge(t, `penstock_share_held{bound="streams"}`) == 0 })
	require.InDelta(t, 86400, f.gauge(t, "penstock_tls_certificate_expires_seconds"), 7200)

	c, base := f.client(true, true)
	answered := make(chan int, 1)
	go func() {
		status, _, _ := ask(t, t.Context(), c, "POST", base+"/channel/c/consumer/k/claim?limit=1&wait=20s", "")
		answered <- status
	}()
	eventually(t, "the claim waits", func() bool { return f.gauge(t, `penstock_share_held{bound="waiters"}`) == 1 })
	require.Zero(t, f.stop())
	require.Less(t, <-answered, 300, "an empty answer, no broken stream")
}

// A request of HTTP/2 without an end keeps no listener open, and no idle connection of HTTP/1.1.
func TestAStopClosesHTTP1BesideARequestOfHTTP2(t *testing.T) {
	parallel(t)
	f := embeddedWorld(t).with("BROKER_DRAIN_TIMEOUT=1h").startFronted()
	f.sample("k")
	c, base := f.client(false, true)
	out, in := io.Pipe()
	r, err := http.NewRequest("POST", base+"/channel/c/broadcast", out)
	require.NoError(t, err)
	for line := range strings.Lines(rawTokens) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		r.Header.Set(name, value)
	}
	answered := make(chan int, 1)
	go func() {
		got, err := c.Do(r)
		if err != nil {
			answered <- 0
			return
		}
		_ = got.Body.Close()
		answered <- got.StatusCode
	}()
	_, err = in.Write([]byte("begins"))
	require.NoError(t, err)
	eventually(t, "the request", func() bool { return f.gauge(t, `penstock_share_held{bound="streams"}`) == 1 })
	idle := f.dial()
	_, err = io.WriteString(idle, "GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
	require.NoError(t, err)
	answers := bufio.NewReader(idle)
	got, err := http.ReadResponse(answers, nil)
	require.NoError(t, err)
	_, err = io.Copy(io.Discard, got.Body)
	require.NoError(t, err)
	ended := make(chan int, 1)
	go func() { ended <- f.stop() }()
	_, err = io.Copy(io.Discard, answers) // until it is closed
	require.NoError(t, err)
	eventually(t, "the listener to close", func() bool {
		_, err := f.try("GET", "/livez", "")
		return err != nil
	})
	require.NoError(t, in.Close())
	require.Equal(t, 201, <-answered)
	require.Zero(t, <-ended)
}

// The crowd of one address has the same bounds on each listener, and locks nobody out.
func TestACrowdOnTheListenersOfHTTP2LocksNobodyOut(t *testing.T) {
	parallel(t)
	f := embeddedWorld(t).startFronted(envFiles+"=512", "BROKER_PUSH_CONCURRENCY=32")
	f.sample()
	for _, to := range []string{f.plain, f.secure} {
		for range 300 {
			d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP("127.0.0.77")}}
			c, err := d.Dial("tcp", to)
			require.NoError(t, err)
			t.Cleanup(func() { _ = c.Close() })
			if _, err := io.WriteString(c, "P"); err != nil {
				t.Log("one of the crowd was ended:", err)
			}
		}
	}
	for range 5 {
		for _, secure := range []bool{true, false} {
			c, base := f.client(secure, true)
			status, text, err := ask(t, t.Context(), c, "POST", base+"/channel/c/broadcast", "x")
			require.NoError(t, err)
			require.Equal(t, 201, status, text)
			c.CloseIdleConnections()
		}
	}
	require.LessOrEqual(t, f.gauge(t, `penstock_share_largest{bound="connections"}`),
		f.gauge(t, `penstock_share_most{bound="connections"}`)/2)
}

// A setting that another process uses is named.
func TestAListenerThatIsTakenIsNamed(t *testing.T) {
	parallel(t)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	p := embeddedWorld(t).launch("BROKER_H2C_LISTEN=" + ln.Addr().String())
	p.awaitEnd()
	require.False(t, p.endedWell())
	require.Contains(t, p.log.String(), "BROKER_H2C_LISTEN")
}

// BenchmarkPublishOverHTTP2 publishes with one client library over HTTP/1.1 and over h2c, from 32
// goroutines: the ratio is the cost of the front.
func BenchmarkPublishOverHTTP2(b *testing.B) {
	w := &world{t: b, env: []string{"BROKER_DATA_DIR=" + b.TempDir()}}
	addr := freeAddr(b)
	p := w.start("BROKER_H2C_LISTEN=" + addr)
	p.sample()
	for name, base := range map[string]string{"http1": p.base, "h2c": "http://" + addr} {
		b.Run(name, func(b *testing.B) {
			var protocols http.Protocols
			protocols.SetHTTP1(name == "http1")
			protocols.SetUnencryptedHTTP2(name != "http1")
			c := &http.Client{Transport: &http.Transport{Protocols: &protocols, MaxIdleConnsPerHost: 64}}
			defer c.CloseIdleConnections()
			body, begun := strings.Repeat("x", 256), time.Now()
			b.SetParallelism(16) // times GOMAXPROCS
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					r, _ := http.NewRequest("POST", base+"/channel/c/broadcast", strings.NewReader(body))
					for line := range strings.Lines(rawTokens) {
						header, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
						r.Header.Set(header, value)
					}
					got, err := c.Do(r)
					if err != nil {
						b.Error(err)
						return
					}
					_, _ = io.Copy(io.Discard, got.Body)
					_ = got.Body.Close()
					if got.StatusCode != 201 {
						b.Error(got.Status)
					}
				}
			})
			b.ReportMetric(float64(b.N)/time.Since(begun).Seconds(), "publishes/s")
		})
	}
}

// with returns a client over TLS that shows a certificate of the authority with a subject.
func (f *fronted) with(subject pkix.Name, two bool, expires time.Time) (*http.Client, string) {
	f.t.Helper()
	issued, err := f.authority.Issue(func(c *x509.Certificate) {
		c.Subject, c.ExtKeyUsage, c.NotAfter = subject, []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, expires
	})
	require.NoError(f.t, err)
	c, base := f.client(true, two)
	config := c.Transport.(*http.Transport).TLSClientConfig
	config.Certificates, config.ClientSessionCache = []tls.Certificate{issued}, tls.NewLRUClientSessionCache(4)
	return c, base
}

// send sends a request with headers, and returns status and body.
func send(t *testing.T, c *http.Client, method, url, body string, headers ...string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	require.NoError(t, err)
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	got, err := c.Do(r)
	require.NoError(t, err)
	defer got.Body.Close()
	text, err := io.ReadAll(got.Body)
	require.NoError(t, err)
	return got.StatusCode, string(text)
}

// A client certificate opens what its subject is mapped to, as an API token does: over TLS alone, and not where the
// request has a token of its own.
func TestACertificateStandsForItsScopes(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		f := w.startMapped("CN=orders,O=Acme=channel:c,management:read; CN=team=group:g;CN=k=consumer:c/k",
			"BROKER_OPEN_MANAGEMENT=false")
		admin := []string{"X-Broker-Admin-Token", adminToken}
		form := append([]string{"Content-Type", "application/x-www-form-urlencoded"}, admin...)
		require.Equal(t, 201, f.do("PUT", "/producer/p", "token=p-token", form...).status)
		require.Equal(t, 201, f.do("PUT", "/group/g", "", form...).status)
		require.Equal(t, 201, f.do("PUT", "/channel/c", "token=c-token", form...).status)
		require.Equal(t, 201, f.do("PUT", "/channel/c/consumer/k", "type=pull&token=k-token", form...).status)
		day := time.Now().Add(24 * time.Hour)
		producer := []string{"X-Broker-Producer-ID", "p", "X-Broker-Producer-Token", "p-token"}
		orders := pkix.Name{CommonName: "orders", Organization: []string{"Acme"}}
		for _, two := range []bool{true, false} {
			c, base := f.with(orders, two, day)
			for range 2 { // the second connection may resume the session of the first
				status, body := send(t, c, "GET", base+"/channels", "")
				require.Equal(t, 200, status, body)
				status, body = send(t, c, "POST", base+"/channel/c/broadcast", "hello", producer...)
				require.Equal(t, 201, status, body)
				status, body = send(t, c, "PUT", base+"/channel/c", "name=C", "Content-Type",
					"application/x-www-form-urlencoded")
				require.Equal(t, 200, status, body)
				require.NotContains(t, body, "c-token")
				c.CloseIdleConnections()
			}
			for _, refused := range []struct{ method, path, header, value, code string }{
				{"POST", "/channel/c/broadcast", "X", "", "producer_not_found"},
				{"PUT", "/channel/d", "X", "", "out_of_scope"},
				{"GET", "/tokens", "X", "", "out_of_scope"},
				{"GET", "/channels", "Authorization", "Bearer guess", "admin_token_mismatch"},
				{"GET", "/channels", "X-Broker-Admin-Token", "guess", "admin_token_mismatch"},
			} {
				_, body := send(t, c, refused.method, base+refused.path, "", refused.header, refused.value)
				require.Contains(t, body, refused.code, "%v", refused)
			}
			k, _ := f.with(pkix.Name{CommonName: "k"}, two, day)
			status, body := send(t, k, "GET", base+"/channel/c/consumer/k/queued-jobs", "")
			require.Equal(t, 200, status, body)
			require.Contains(t, body, "hello")
			for _, subject := range []pkix.Name{{CommonName: "orders"}, {CommonName: "Acme", Organization: []string{"orders"}},
				{CommonName: "other"}} {
				c, _ := f.with(subject, two, day)
				status, body := send(t, c, "GET", base+"/channels", "")
				require.Equal(t, 401, status, body)
			}
			team, _ := f.with(pkix.Name{CommonName: "team"}, two, day)
			status, body = send(t, team, "GET", base+"/channel/c", "")
			require.Equal(t, 403, status, body)
			require.Equal(t, 200, f.do("PUT", "/channel/c", "group=g", form...).status)
			status, body = send(t, team, "GET", base+"/channel/c", "")
			require.Equal(t, 200, status, body)
			require.Equal(t, 200, f.do("PUT", "/channel/c", "group=", form...).status)
			status, body = send(t, team, "GET", base+"/channel/c", "")
			require.Equal(t, 403, status, body)
		}
		plain, base := f.client(false, true)
		for _, at := range []string{base, f.base} {
			for _, forged := range [][]string{{}, {"X-SSL-Client-S-DN", "CN=orders,O=Acme", "X-Forwarded-Proto", "https",
				"X-Forwarded-Client-Cert", "Subject=\"CN=orders,O=Acme\""}} {
				c := plain
				if at == f.base {
					c = http.DefaultClient
				}
				status, body := send(t, c, "GET", at+"/channels", "", forged...)
				require.Equal(t, 401, status, body)
			}
		}
		log := f.do("GET", "/audit", "", admin...).body
		require.Contains(t, log, `"Who":"certificate CN=orders,O=Acme"`)
		require.Contains(t, log, `"Action":"put channel"`)
		require.NotContains(t, f.do("GET", "/tokens", "", admin...).body, "orders")
	})
}

// startMapped is startFronted for clients with certificates of its authority.
func (w *world) startMapped(principals string, env ...string) *fronted {
	w.t.Helper()
	authority, err := certs.NewAuthority()
	require.NoError(w.t, err)
	ca := filepath.Join(w.t.TempDir(), "ca.pem")
	require.NoError(w.t, os.WriteFile(ca, authority.PEM(), 0o600))
	return w.startFrontedBy(authority, append(env, "BROKER_TLS_CLIENT_CA="+ca, "BROKER_TLS_PRINCIPALS="+principals)...)
}
