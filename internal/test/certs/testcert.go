// Package certs makes certificates for tests, good ones and bad ones.
package certs

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"time"
)

// An Authority signs certificates. No system trusts it.
type Authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// NewAuthority returns an authority with a key of its own.
func NewAuthority() (*Authority, error) {
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: "penstock test authority"},
		IsCA:    true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	template.SerialNumber, template.NotBefore, template.NotAfter = issued()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	return &Authority{cert, key}, err
}

// Issue returns a certificate of a server at 127.0.0.1, valid for a day. change,
// unless it is nil, makes it another one before it is signed.
func (a *Authority) Issue(change func(*x509.Certificate)) (tls.Certificate, error) {
	template := &x509.Certificate{
		Subject:     pkix.Name{CommonName: "penstock test server"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage:    x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	template.SerialNumber, template.NotBefore, template.NotAfter = issued()
	if change != nil {
		change(template)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	if err != nil {
		return tls.Certificate{}, err
	}
	leaf, err := x509.ParseCertificate(der)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, err
}

// issued are the number and the validity of a certificate made now.
func issued() (serial *big.Int, from, until time.Time) {
	now := time.Now()
	return big.NewInt(now.UnixNano()), now.Add(-time.Hour), now.Add(24 * time.Hour)
}

// Pool returns a pool that trusts only the authority.
func (a *Authority) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return pool
}

// PEM is the certificate of the authority, for a file of trusted ones.
func (a *Authority) PEM() []byte { return encode("CERTIFICATE", a.cert.Raw) }

// PEM returns a certificate and its key as servers read them from files.
func PEM(c tls.Certificate) (cert, key []byte, err error) {
	der, err := x509.MarshalPKCS8PrivateKey(c.PrivateKey)
	if err != nil {
		return nil, nil, err
	}
	return encode("CERTIFICATE", c.Certificate[0]), encode("PRIVATE KEY", der), nil
}

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}
