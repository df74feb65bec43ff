package main

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/model/apitype"
	"github.com/penstock-broker/penstock/internal/test/certs"
)

// A wire is a consumer below HTTP: it keeps all bytes that were sent to it.
type wire struct {
	url   string
	mu    sync.Mutex
	heard strings.Builder
	conns int
}

// newWire hands each connection to handle and closes it then.
func newWire(t *testing.T, scheme string, handle func(c net.Conn)) *wire {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	w := &wire{url: scheme + "://" + l.Addr().String()}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			w.mu.Lock()
			w.conns++
			w.mu.Unlock()
			go func() {
				defer c.Close()
				_ = c.SetDeadline(time.Now().Add(patience))
				handle(wireConn{c, w})
			}()
		}
	}()
	return w
}

type wireConn struct {
	net.Conn
	w *wire
}

func (c wireConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	c.w.heard.Write(p[:n])
	return n, err
}

// secured speaks TLS and closes after what is said to it.
func secured(config *tls.Config) func(net.Conn) {
	return func(c net.Conn) { _, _ = tls.Server(c, config).Read(make([]byte, 4096)) }
}

// Each consumer is wrong in its own way: its job is dead after its attempts, the
// dead letter says what was wrong, and nobody heard the token. One whose authority
// is named by SSL_CERT_FILE gets the message.
func TestHostileTLSOfConsumersIsNamedInTheDeadLetters(t *testing.T) {
	parallel(t)
	ours, err := certs.NewAuthority()
	require.NoError(t, err)
	theirs, err := certs.NewAuthority()
	require.NoError(t, err)
	with := func(a *certs.Authority, change func(*x509.Certificate)) *tls.Config {
		c, err := a.Issue(change)
		require.NoError(t, err)
		return &tls.Config{Certificates: []tls.Certificate{c}}
	}
	asking := with(ours, nil)
	asking.ClientAuth, asking.ClientCAs = tls.RequireAndVerifyClientCert, ours.Pool()
	file := filepath.Join(t.TempDir(), "authority.pem")
	require.NoError(t, os.WriteFile(file, ours.PEM(), 0o600))

	hang := func(c net.Conn) { _, _ = io.Copy(io.Discard, c) }
	bad := map[string]struct {
		*wire
		says string
	}{
		"expired": {newWire(t, "https", secured(with(ours, func(c *x509.Certificate) {
			c.NotAfter = time.Now().Add(-time.Minute)
		}))),
			"the certificate of the consumer has expired, or is not valid yet"},
		"wrong-host": {newWire(t, "https", secured(with(ours, func(c *x509.Certificate) {
			c.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 2)}
		}))),
			"certificate is valid for 127.0.0.2, not 127.0.0.1"},
		"stranger": {newWire(t, "https", secured(with(theirs, nil))), "signed by an unknown authority"},
		"silent":   {newWire(t, "https", hang), "timeout in the TLS handshake"},
		"half-a-word": {newWire(t, "https", func(c net.Conn) {
			_, _ = io.WriteString(c, "\x16\x03\x03\x00\x7a\x02\x00")
			hang(c)
		}), "timeout in the TLS handshake"},
		"plain-http": {newWire(t, "https", func(c net.Conn) {
			_, _ = io.WriteString(c, "HTTP/1.1 400 Bad Request\r\n\r\n")
			hang(c)
		}),
			"the consumer speaks HTTP, not TLS"},
		"asks-for-ours": {newWire(t, "https", secured(asking)), "the consumer asked for a client certificate"},
	}
	tlsAtPlain := newWire(t, "http", func(c net.Conn) {
		_, _ = c.Read(make([]byte, 4096))
		_, _ = io.WriteString(c, "\x15\x03\x01\x00\x02\x02\x46")
	})
	good := newSink(t, nil)
	server := &http.Server{Handler: good.Config.Handler, TLSConfig: with(ours, nil)}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	go func() { _ = server.ServeTLS(l, "", "") }()
	t.Cleanup(func() { _ = server.Close() })

	p := embeddedWorld(t).with(quick...).with("BROKER_MAX_RETRIES=1", "SSL_CERT_FILE="+file).start()
	s := p.stage(t, "good=https://"+l.Addr().String(), "tls-at-plain="+tlsAtPlain.url)
	for name, b := range bad {
		s.join(name + "=" + b.url)
	}
	at := s.persist("m-1")
	eventually(t, "the delivery over TLS", func() bool { return good.times("m-1") == 1 })
	for name, b := range bad {
		var dead []apitype.Job
		eventually(t, "the dead letter of "+name, func() bool { dead = s.dead(name, 10); return len(dead) == 1 })
		require.Contains(t, dead[0].Reason, b.says, name)
		require.Contains(t, dead[0].Reason, "attempt 2 of 2 failed", name)
		require.NotRegexp(t, `egress|tls: |x509|dial `, dead[0].Reason, name)
		require.Equal(t, dead[0].Reason, s.job(name, dead[0].ID).Reason)
		b.mu.Lock()
		require.Equal(t, 2, b.conns, "%s: a connection for each attempt", name)
		require.NotContains(t, b.heard.String(), name+"-token")
		b.mu.Unlock()
	}
	var plain []apitype.Job
	eventually(t, "the dead letter of tls-at-plain", func() bool {
		plain = s.dead("tls-at-plain", 10)
		return len(plain) == 1
	})
	require.Contains(t, plain[0].Reason, "the consumer speaks TLS, not HTTP")
	require.Equal(t, 1, good.count())
	require.Len(t, s.message(at).Jobs, len(bad)+2)
}
