//go:build unix

package realservers

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
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
	now := time.Now()
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "penstock test authority"},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	server := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "redis"},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(24 * time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage:    x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	caKey, err1 := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	key, err2 := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	caDER, err1 := x509.CreateCertificate(rand.Reader, ca, ca, &caKey.PublicKey, caKey)
	der, err2 := x509.CreateCertificate(rand.Reader, server, ca, &key.PublicKey, caKey)
	keyDER, err3 := x509.MarshalPKCS8PrivateKey(key)
	return errors.Join(err1, err2, err3,
		writePEM(filepath.Join(dir, "ca.pem"), "CERTIFICATE", caDER),
		writePEM(filepath.Join(dir, "server.pem"), "CERTIFICATE", der),
		writePEM(filepath.Join(dir, "server.key"), "PRIVATE KEY", keyDER))
}

func writePEM(path, kind string, der []byte) error {
	return os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)
}
