package egress

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"encoding/hex"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/internal/test/certs"
)

// secret is what must not reach a server before its certificate was verified.
const secret = "the-token-of-the-consumer"

func authority(t *testing.T) *certs.Authority {
	t.Helper()
	a, err := certs.NewAuthority()
	require.NoError(t, err)
	return a
}

func issue(t *testing.T, a *certs.Authority, change func(*x509.Certificate)) tls.Certificate {
	t.Helper()
	c, err := a.Issue(change)
	require.NoError(t, err)
	return c
}

func trusting(a *certs.Authority) func(*Options) {
	return func(o *Options) { o.TLS = &tls.Config{RootCAs: a.Pool(), MinVersion: tls.VersionTLS12} }
}

// postSecret posts once with a token in a header and in the body.
func postSecret(t *testing.T, c *Client, url, protocol string, timeout time.Duration) Result {
	t.Helper()
	target, err := c.Target(ToConsumers, url, protocol)
	require.NoError(t, err)
	req := fasthttp.AcquireRequest()
	defer fasthttp.ReleaseRequest(req)
	req.Header.Set("X-Broker-Consumer-Token", secret)
	req.SetBodyString(secret)
	return target.Post(req, timeout)
}

// A heard is a server that keeps every byte it gets from the wire.
type heard struct {
	net.Listener
	mu    sync.Mutex
	bytes []byte
	conns atomic.Int32
}

// hearing serves each connection with handle and closes it then.
func hearing(t *testing.T, handle func(c net.Conn)) *heard {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	h := &heard{Listener: l}
	var all sync.WaitGroup
	over := make(chan struct{})
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			h.conns.Add(1)
			all.Go(func() {
				done := make(chan struct{})
				all.Go(func() {
					select {
					case <-over:
					case <-done:
					}
					_ = c.Close()
				})
				handle(&heardConn{c, h})
				close(done)
			})
		}
	})
	t.Cleanup(func() { _ = l.Close(); close(over); all.Wait() })
	return h
}

func (h *heard) url() string { return "https://" + h.Addr().String() + "/cb" }

func (h *heard) text() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return string(h.bytes)
}

type heardConn struct {
	net.Conn
	h *heard
}

func (c *heardConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.h.mu.Lock()
	c.h.bytes = append(c.h.bytes, p[:n]...)
	c.h.mu.Unlock()
	return n, err
}

// A shortConn says only the first bytes of what is written to it.
type shortConn struct {
	net.Conn
	left int
}

func (c *shortConn) Write(p []byte) (int, error) {
	n := min(c.left, len(p))
	c.left -= n
	if _, err := c.Conn.Write(p[:n]); err != nil {
		return 0, err
	}
	return len(p), nil
}

func hang(c net.Conn) { _, _ = io.Copy(io.Discard, c) }

// Of a server that is not what its URL says nobody hears a word, and the reason
// says what was wrong with it.
func TestTLSOfABadServerFailsBeforeTheRequestAndSaysWhy(t *testing.T) {
	ours := authority(t)
	at := func(name string) string { return strings.ReplaceAll(name, " ", "-") + ".test" }
	for name, tc := range map[string]struct {
		from   *certs.Authority
		change func(*x509.Certificate)
		says   []string
	}{
		"expired": {ours, func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) },
			[]string{"certificate has expired", "is after"}},
		"not yet": {ours, func(c *x509.Certificate) { c.NotBefore = time.Now().Add(time.Hour) }, []string{"not yet valid",
			"is before"}},
		"host": {ours, func(c *x509.Certificate) { c.DNSNames = []string{"other.test"} },
			[]string{"certificate is valid for other.test, not host.test"}},
		"nobody": {ours, nil, []string{"certificate is not valid for any names", "nobody.test"}},
		"stranger": {authority(t), func(c *x509.Certificate) { c.DNSNames = []string{at("stranger")} },
			[]string{"certificate signed by unknown authority"}},
		"client": {ours, func(c *x509.Certificate) {
			c.DNSNames, c.ExtKeyUsage = []string{at("client")}, []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
		}, []string{"certificate specifies an incompatible key usage"}},
	} {
		cert := issue(t, tc.from, func(c *x509.Certificate) {
			c.DNSNames = []string{at(name)}
			if name == "nobody" {
				c.DNSNames, c.IPAddresses = nil, nil
			}
			if tc.change != nil {
				tc.change(c)
			}
		})
		for version, most := range map[string]uint16{"1.2": tls.VersionTLS12, "1.3": tls.VersionTLS13} {
			for _, protocol := range []string{"", "h2"} {
				t.Run(strings.Join([]string{name, version, protocol}, " "), func(t *testing.T) {
					var heardText atomic.Int64
					srv := hearing(t, func(c net.Conn) {
						secure := tls.Server(c, &tls.Config{Certificates: []tls.Certificate{cert}, MaxVersion: most,
							NextProtos: []string{"h2", "http/1.1"}})
						n, _ := secure.Read(make([]byte, 4096))
						heardText.Add(int64(n))
					})
					c := client(t, trusting(ours), always("127.0.0.1"))
					r := postSecret(t, c, "https://"+at(name)+":"+port(t, srv)+"/", protocol, 30*time.Second)
					for _, words := range append(tc.says, "tls: failed to verify certificate") {
						require.ErrorContains(t, r.Err, words)
					}
					require.False(t, r.Sent)
					require.False(t, r.Local, "the consumer is to blame")
					require.Zero(t, r.Status)
					require.EqualValues(t, 1, srv.conns.Load(), "one attempt, one connection")
					require.Zero(t, heardText.Load())
					require.NotContains(t, srv.text(), secret)
					require.Zero(t, c.open())
				})
			}
		}
	}
}

// A handshake that does not go on ends with the attempt, and the reason says
// that it was the handshake.
func TestTLSHandshakeThatStallsEndsWithTheAttempt(t *testing.T) {
	ours := authority(t)
	config := &tls.Config{Certificates: []tls.Certificate{issue(t, ours, nil)}, NextProtos: []string{"h2", "http/1.1"}}
	for name, handle := range map[string]func(net.Conn){
		"accepts and is silent":    hang,
		"half a ServerHello":       func(c net.Conn) { _ = tls.Server(&shortConn{c, 40}, config).Handshake(); hang(c) },
		"the head of a record":     func(c net.Conn) { _ = tls.Server(&shortConn{c, 5}, config).Handshake(); hang(c) },
		"all but its last message": func(c net.Conn) { _ = tls.Server(&shortConn{c, 400}, config).Handshake(); hang(c) },
	} {
		for _, protocol := range []string{"", "h2"} {
			t.Run(name+" "+protocol, func(t *testing.T) {
				t.Parallel()
				srv := hearing(t, handle)
				const timeout = 500 * time.Millisecond
				c := client(t, trusting(ours))
				r := postSecret(t, c, srv.url(), protocol, timeout)
				require.ErrorIs(t, r.Err, ErrTimeout)
				require.ErrorContains(t, r.Err, "TLS handshake")
				require.False(t, r.Sent)
				require.False(t, r.Local)
				require.GreaterOrEqual(t, r.Took, timeout)
				require.Less(t, r.Took, dialTimeout, "the deadline of the attempt, not one of its parts")
				require.NotContains(t, srv.text(), secret)
				require.EqualValues(t, 1, srv.conns.Load())
				if protocol == "" {
					require.Zero(t, c.open())
				}
			})
		}
	}
}

// A server that hangs up, or speaks something else than TLS, in the handshake.
func TestTLSHandshakeThatBreaksSaysWhy(t *testing.T) {
	ours := authority(t)
	config := &tls.Config{Certificates: []tls.Certificate{issue(t, ours, nil)}}
	for name, tc := range map[string]struct {
		handle func(net.Conn)
		says   string
	}{
		"hangs up":            {func(c net.Conn) { _, _ = c.Read(make([]byte, 4096)) }, "TLS handshake: EOF"},
		"hangs up in a hello": {func(c net.Conn) { _ = tls.Server(&halfOnly{c}, config).Handshake() }, "TLS handshake"},
		"an old version": {func(c net.Conn) {
			old := config.Clone()
			old.MinVersion = tls.VersionTLS10
			old.MaxVersion = tls.VersionTLS11
			_ = tls.Server(c, old).Handshake()
		}, "protocol version"},
		"plain HTTP": {func(c net.Conn) {
			_, _ = io.WriteString(c, "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
			hang(c)
		}, "HTTP, not TLS"},
		"plain HTTP that waits": {func(c net.Conn) {
			_, _ = c.Read(make([]byte, 4096))
			_, _ = io.WriteString(c, "HTTP/1.0 400 Bad Request\r\n\r\n")
		}, "HTTP, not TLS"},
		"something else": {func(c net.Conn) { _, _ = io.WriteString(c, "SSH-2.0-OpenSSH_9.9\r\n"); hang(c) },
			"does not look like a TLS handshake"},
	} {
		for _, protocol := range []string{"", "h2"} {
			t.Run(name+" "+protocol, func(t *testing.T) {
				srv := hearing(t, tc.handle)
				r := postSecret(t, client(t, trusting(ours)), srv.url(), protocol, 30*time.Second)
				require.ErrorContains(t, r.Err, tc.says)
				require.NotErrorIs(t, r.Err, ErrTimeout)
				require.False(t, r.Sent)
				require.False(t, r.Local)
				require.NotContains(t, srv.text(), secret)
				require.EqualValues(t, 1, srv.conns.Load())
			})
		}
	}
}

// A halfOnly connection ends after half of the first flight.
type halfOnly struct{ net.Conn }

func (c *halfOnly) Write(p []byte) (int, error) {
	n, _ := c.Conn.Write(p[:len(p)/2])
	_ = c.Conn.Close()
	return n, io.ErrClosedPipe
}

// A URL that begins with http and leads to a TLS port: the request is sent in
// plain text, as the URL asks, and the reason says what listens there.
func TestTLSServerBehindAPlainURLIsNamed(t *testing.T) {
	const protocolVersion = "\x15\x03\x01\x00\x02\x02\x46" // the alert that OpenSSL answers
	srv := hearing(t, func(c net.Conn) { _, _ = c.Read(make([]byte, 4096)); _, _ = io.WriteString(c, protocolVersion) })
	url := "http://" + srv.Addr().String() + "/"
	r := post(t, client(t), url, "", "x", 30*time.Second)
	require.ErrorContains(t, r.Err, "TLS, not HTTP")
	require.False(t, r.OK())
	require.EqualValues(t, 1, srv.conns.Load())
	require.Error(t, post(t, client(t), url, "h2", "x", 30*time.Second).Err)
}

// A consumer that wants a certificate of ours gets none: the attempt fails, after
// one request at most.
func TestTLSConsumerThatAsksForOurCertificateFailsTheAttempt(t *testing.T) {
	ours := authority(t)
	for version, most := range map[string]uint16{"1.2": tls.VersionTLS12, "1.3": tls.VersionTLS13} {
		for _, protocol := range []string{"", "h2"} {
			t.Run(version+" "+protocol, func(t *testing.T) {
				var requests atomic.Int32
				srv := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { requests.Add(1) }))
				srv.Config.ErrorLog = log.New(io.Discard, "", 0)
				srv.EnableHTTP2 = true
				srv.TLS = &tls.Config{Certificates: []tls.Certificate{issue(t, ours, nil)},
					ClientAuth: tls.RequireAndVerifyClientCert,
					ClientCAs:  ours.Pool(), MaxVersion: most}
				srv.StartTLS()
				defer srv.Close()
				for range 20 {
					r := postSecret(t, client(t, trusting(ours)), srv.URL, protocol, 30*time.Second)
					require.ErrorContains(t, r.Err, "certificate")
					require.NotErrorIs(t, r.Err, ErrTimeout)
					require.False(t, r.OK())
				}
				require.Zero(t, requests.Load())
			})
		}
	}
}

// While connections are kept open the server gets a new certificate: they go on,
// new ones get the new one, and no attempt is lost.
func TestTLSCertificateIsRotatedUnderOpenConnections(t *testing.T) {
	ours := authority(t)
	for _, protocol := range []string{"", "h2"} {
		t.Run(protocol, func(t *testing.T) {
			named := func(c *x509.Certificate) { c.DNSNames = []string{"host.test"} }
			first, second := issue(t, ours, named), issue(t, ours, named)
			var current atomic.Pointer[tls.Certificate]
			current.Store(&first)
			var shown sync.Map // certificate -> handshakes
			count := func(c *tls.Certificate) *atomic.Int32 {
				n, _ := shown.LoadOrStore(c, new(atomic.Int32))
				return n.(*atomic.Int32)
			}
			var together atomic.Pointer[sync.WaitGroup]
			srv := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
				if all := together.Load(); all != nil { // so many connections at a time
					all.Done()
					all.Wait()
				}
			}))
			srv.Config.ErrorLog = log.New(io.Discard, "", 0)
			srv.EnableHTTP2 = protocol == "h2"
			srv.TLS = &tls.Config{SessionTicketsDisabled: true, GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate,
				error) {
				c := current.Load()
				count(c).Add(1)
				return c, nil
			}}
			srv.StartTLS()
			defer srv.Close()
			c := client(t, trusting(ours), always("127.0.0.1"))
			url := "https://host.test:" + port(t, srv.Listener) // a server without a name to go by has one certificate
			require.True(t, postSecret(t, c, url, protocol, 30*time.Second).OK())
			require.EqualValues(t, 1, count(&first).Load())

			current.Store(&second)
			for range 10 {
				r := postSecret(t, c, url, protocol, 30*time.Second)
				require.NoError(t, r.Err)
			}
			require.Zero(t, count(&second).Load(), "the open connection goes on")
			if protocol == "" { // HTTP/2 has one connection for all
				var all, posts sync.WaitGroup
				all.Add(5)
				together.Store(&all)
				for range 5 {
					posts.Go(func() { require.NoError(t, postSecret(t, c, url, protocol, 30*time.Second).Err) })
				}
				posts.Wait()
				together.Store(nil)
				require.EqualValues(t, 4, count(&second).Load(), "new connections get the new certificate")
			}

			// The one after it is of an authority that nobody knows: those that are
			// open go on, and then it is a failure with its reason.
			third := issue(t, authority(t), named)
			current.Store(&third)
			require.True(t, postSecret(t, c, url, protocol, 30*time.Second).OK())
			srv.CloseClientConnections()
			r := postSecret(t, c, url, protocol, 30*time.Second)
			if r.Sent { // its close was still on its way
				r = postSecret(t, c, url, protocol, 30*time.Second)
			}
			require.ErrorContains(t, r.Err, "certificate signed by unknown authority")
			require.False(t, r.Sent)
		})
	}
}

// A renegotiating server asks for a new handshake inside the connection, which
// only TLS 1.2 has: after the handshake or when it has read the request.
type renegotiating struct {
	cert     tls.Certificate
	late     bool
	requests atomic.Int32
	over     chan struct{} // closed when the client has hung up
}

func (s *renegotiating) serve(c net.Conn) {
	wire := &helloConn{Conn: c}
	keys := &keyLog{}
	secure := tls.Server(wire, &tls.Config{Certificates: []tls.Certificate{s.cert}, MaxVersion: tls.VersionTLS12,
		KeyLogWriter:           keys,
		SessionTicketsDisabled: true, CipherSuites: []uint16{tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256}})
	if secure.Handshake() != nil {
		return
	}
	if s.late {
		s.read(secure)
	}
	_, _ = c.Write(helloRequest(keys.secret, wire.random(), keys.client))
	for s.read(secure) {
	}
	close(s.over)
}

// read reads once, counts the beginning of a request, and reports whether there
// may be more.
func (s *renegotiating) read(c net.Conn) bool {
	buf := make([]byte, 4096)
	n, err := c.Read(buf)
	if strings.HasPrefix(string(buf[:n]), "POST ") {
		s.requests.Add(1)
	}
	return err == nil
}

// A keyLog takes the secret from what crypto/tls writes for analysers.
type keyLog struct{ client, secret []byte }

func (k *keyLog) Write(p []byte) (int, error) {
	if f := strings.Fields(string(p)); len(f) == 3 && f[0] == "CLIENT_RANDOM" {
		k.client, _ = hex.DecodeString(f[1])
		k.secret, _ = hex.DecodeString(f[2])
	}
	return len(p), nil
}

// A helloConn remembers the first flight of a server: it begins with its hello.
type helloConn struct {
	net.Conn
	first []byte
}

func (c *helloConn) Write(p []byte) (int, error) {
	if c.first == nil {
		c.first = append([]byte{}, p...)
	}
	return c.Conn.Write(p)
}

// random is the server's: behind the heads of record and message and the version.
func (c *helloConn) random() []byte { return c.first[5+4+2:][:32] }

// helloRequest is the record of that message (RFC 5246, 7.4.1.1) as a server sends
// it first after its Finished, under AES_128_GCM_SHA256.
func helloRequest(secret, server, client []byte) []byte {
	keys := prf(secret, "key expansion", append(append([]byte{}, server...), client...), 40)
	block, err := aes.NewCipher(keys[16:32]) // behind the client's
	if err != nil {
		panic(err)
	}
	seal, err := cipher.NewGCM(block)
	if err != nil {
		panic(err)
	}
	message := []byte{0, 0, 0, 0}                     // HelloRequest, empty
	sequence := binary.BigEndian.AppendUint64(nil, 1) // Finished was 0
	nonce := append(append([]byte{}, keys[36:40]...), sequence...)
	extra := append(append([]byte{}, sequence...), 22, 3, 3, 0, byte(len(message)))
	sealed := seal.Seal(append([]byte{}, sequence...), nonce, message, extra)
	return append([]byte{22, 3, 3, 0, byte(len(sealed))}, sealed...)
}

// prf is the pseudorandom function of TLS 1.2 (RFC 5246, 5).
func prf(secret []byte, label string, seed []byte, n int) []byte {
	seed = append([]byte(label), seed...)
	mac := func(parts ...[]byte) []byte {
		h := hmac.New(sha256.New, secret)
		for _, p := range parts {
			h.Write(p)
		}
		return h.Sum(nil)
	}
	var out []byte
	for a := mac(seed); len(out) < n; a = mac(a) {
		out = append(out, mac(a, seed)...)
	}
	return out[:n]
}

// A client that renegotiates could be made to repeat what it said, or to say it
// to somebody else: ours does not, and the attempt has failed.
func TestTLSRenegotiationIsRefused(t *testing.T) {
	ours := authority(t)
	for name, late := range map[string]bool{"before the request": false, "after the request": true} {
		for _, protocol := range []string{"", "h2"} {
			t.Run(name+" "+protocol, func(t *testing.T) {
				s := &renegotiating{cert: issue(t, ours, nil), late: late, over: make(chan struct{})}
				srv := hearing(t, s.serve)
				c := client(t, trusting(ours))
				r := postSecret(t, c, srv.url(), protocol, 30*time.Second)
				require.Error(t, r.Err)
				if protocol == "" { // of h2's two directions either may fail first, and not each knows why
					require.ErrorContains(t, r.Err, "no renegotiation")
				}
				require.False(t, r.OK())
				require.True(t, r.Sent)
				require.EqualValues(t, 1, srv.conns.Load())
				<-s.over
				require.LessOrEqual(t, s.requests.Load(), int32(1))
				if late {
					require.EqualValues(t, 1, s.requests.Load())
				}
			})
		}
	}
}
