//go:build unix

package servers

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/penstock-broker/penstock/internal/test/certs"
)

// A TLSRedisServer is a RedisServer that speaks TLS only, with a certificate of
// an authority of its own.
type TLSRedisServer struct {
	*RedisServer
	// CAFile is the certificate of the authority, in PEM.
	CAFile string
}

// StartRedisTLS is StartRedis with TLS; it asks clients for no certificate.
func StartRedisTLS(tb TB, extraArgs ...string) *TLSRedisServer {
	tb.Helper()
	args := append([]string{
		"--tls-cert-file", "server.pem",
		"--tls-key-file", "server.key",
		"--tls-ca-cert-file", "ca.pem",
		"--tls-auth-clients", "no",
	}, extraArgs...)
	port := func(p int) []string { return []string{"--port", "0", "--tls-port", strconv.Itoa(p)} }
	p, err := startRedisProgram(redisProgram(port, args), writeCertificates)
	if err != nil {
		tb.Fatal(err)
	}
	n := &RedisNode{p}
	tb.Cleanup(func() {
		if err := n.Close(); err != nil {
			tb.Errorf("remove the Redis server: %v", err)
		}
	})
	return &TLSRedisServer{RedisServer: &RedisServer{tb: tb, node: n}, CAFile: filepath.Join(p.folder.path, "ca.pem")}
}

// URL returns the server's rediss:// address.
func (s *TLSRedisServer) URL() string {
	return "rediss" + strings.TrimPrefix(s.RedisServer.URL(), "redis")
}

// writeCertificates makes an authority and a certificate for 127.0.0.1 in dir.
func writeCertificates(dir string) error {
	authority, err := certs.NewAuthority()
	if err != nil {
		return err
	}
	server, err := authority.Issue(nil)
	if err != nil {
		return err
	}
	cert, key, err := certs.PEM(server)
	write := func(name string, text []byte) error { return os.WriteFile(filepath.Join(dir, name), text, 0o600) }
	return errors.Join(err, write("ca.pem", authority.PEM()), write("server.pem", cert), write("server.key", key))
}
