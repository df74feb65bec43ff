package front

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"log/slog"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/internal/test/certs"
)

// serial returns the number of the certificate that a new connection gets.
func (r *rig) serial() string {
	c, err := tls.Dial("tcp", r.secure, &tls.Config{RootCAs: r.authority.Pool(), MinVersion: tls.VersionTLS12})
	require.NoError(r.t, err)
	defer c.Close()
	return c.ConnectionState().PeerCertificates[0].SerialNumber.String()
}

// New files are used by the next connection. Bad ones change nothing, and are said once.
func TestCertificatesAreReadAgain(t *testing.T) {
	var said bytes.Buffer
	r := newRig(t, echo, func(o *Options, _ *fasthttp.Server, _ Files) {
		o.Log = slog.New(slog.NewTextHandler(&said, nil))
	})
	first := r.serial()
	r.front.reload()
	require.Equal(t, first, r.serial())
	require.Equal(t, "0", metric(t, r, "penstock_tls_reloads_total", "ok"))

	r.issue(func(c *x509.Certificate) { c.SerialNumber = big.NewInt(77) })
	r.front.reload()
	require.Equal(t, "77", r.serial())
	require.Equal(t, "1", metric(t, r, "penstock_tls_reloads_total", "ok"))

	for _, bad := range []string{"", "no PEM", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"} {
		require.NoError(t, os.WriteFile(r.files.Cert, []byte(bad), 0o600))
		r.front.reload()
		r.front.reload()
		require.Equal(t, "77", r.serial())
	}
	require.NoError(t, os.Remove(r.files.Key))
	r.front.reload()
	require.Equal(t, "77", r.serial())
	require.Equal(t, "4", metric(t, r, "penstock_tls_reloads_total", "failed"))
	require.Contains(t, said.String(), "BROKER_TLS_CERT")

	r.issue(func(c *x509.Certificate) {
		c.SerialNumber, c.NotAfter = big.NewInt(78), time.Now().Add(time.Hour)
	})
	r.front.reload()
	require.Equal(t, "78", r.serial())
	require.Contains(t, said.String(), "ends soon")
	require.NotContains(t, said.String(), "PRIVATE")
	require.InDelta(t, 3600, r.front.o.Certificates.left(), 60)
}

// Each fault names the setting whose file is wrong.
func TestFaultsOfFilesNameTheirSetting(t *testing.T) {
	r := newRig(t, echo, nil)
	dir := t.TempDir()
	write := func(name string, content []byte) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, content, 0o600))
		return path
	}
	other, err := r.authority.Issue(nil)
	require.NoError(t, err)
	_, otherKey, err := certs.PEM(other)
	require.NoError(t, err)
	for _, c := range []struct {
		files Files
		want  string
	}{
		{Files{Cert: filepath.Join(dir, "none"), Key: r.files.Key}, "BROKER_TLS_CERT names a file that cannot be read"},
		{Files{Cert: dir, Key: r.files.Key}, "BROKER_TLS_CERT names a file that cannot be read"},
		{Files{Cert: r.files.Cert, Key: filepath.Join(dir, "none")}, "BROKER_TLS_KEY names a file that cannot be read"},
		{Files{Cert: write("empty", nil), Key: r.files.Key}, "BROKER_TLS_CERT names an empty file"},
		{Files{Cert: write("large", make([]byte, mostFile+1)), Key: r.files.Key},
			"BROKER_TLS_CERT names a file of more than"},
		{Files{Cert: r.files.Key, Key: r.files.Key}, "BROKER_TLS_CERT names a file without a certificate"},
		{Files{Cert: r.files.Cert, Key: r.files.Cert}, "BROKER_TLS_KEY names a file without a private key"},
		{Files{Cert: r.files.Cert, Key: write("other", otherKey)}, "BROKER_TLS_KEY names a key"},
		{Files{Cert: r.files.Cert, Key: r.files.Key, ClientCA: r.files.Key},
			"BROKER_TLS_CLIENT_CA names a file without a certificate"},
		{Files{Cert: r.files.Cert, Key: r.files.Key, ClientCA: filepath.Join(dir, "none")},
			"BROKER_TLS_CLIENT_CA names a file that cannot"},
	} {
		_, err := Open(c.files)
		require.ErrorContains(t, err, c.want)
		require.NotContains(t, err.Error(), "PRIVATE")
	}
}

// With BROKER_TLS_CLIENT_CA only clients of its authorities get in, and another one after it changes.
func TestClientsShowCertificates(t *testing.T) {
	clients, err := certs.NewAuthority()
	require.NoError(t, err)
	strangers, err := certs.NewAuthority()
	require.NoError(t, err)
	var ca string
	r := newRig(t, echo, func(o *Options, _ *fasthttp.Server, files Files) {
		ca = filepath.Join(t.TempDir(), "ca.pem")
		require.NoError(t, os.WriteFile(ca, clients.PEM(), 0o600))
		files.ClientCA = ca
		o.Certificates, err = Open(files)
		require.NoError(t, err)
	})
	of := func(a *certs.Authority) tls.Certificate {
		c, err := a.Issue(func(c *x509.Certificate) {
			c.Subject, c.ExtKeyUsage = pkix.Name{CommonName: "ops"}, []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
		})
		require.NoError(t, err)
		return c
	}
	get := func(protocol string, with ...tls.Certificate) (*http.Response, error) {
		c, base := r.client(protocol, with...)
		defer c.CloseIdleConnections()
		got, err := c.Get(base)
		if err == nil {
			_ = got.Body.Close()
		}
		return got, err
	}
	ops, stranger := of(clients), of(strangers)
	for _, protocol := range []string{"h2", "http/1.1"} {
		_, err := get(protocol)
		require.Error(t, err, "no certificate")
		_, err = get(protocol, stranger)
		require.Error(t, err, "one of another authority")
		_, err = get(protocol, ops)
		require.NoError(t, err)
	}
	require.Eventually(t, func() bool { // the server counts after the client knows
		return metric(t, r, "penstock_tls_handshake_failures_total", "") == "4"
	}, time.Minute, 5*time.Millisecond)
	require.NoError(t, os.WriteFile(ca, strangers.PEM(), 0o600))
	r.front.reload()
	_, err = get("h2", ops)
	require.Error(t, err)
	_, err = get("h2", stranger)
	require.NoError(t, err)
}
