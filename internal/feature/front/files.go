package front

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"
)

// The settings that name files.
const (
	SettingCert     = "BROKER_TLS_CERT"
	SettingKey      = "BROKER_TLS_KEY"
	SettingClientCA = "BROKER_TLS_CLIENT_CA"
)

const (
	// lookEvery is how often the files are looked at.
	lookEvery = 5 * time.Second
	// mostFile bounds a file; the certificates of all public authorities have a quarter of it.
	mostFile = 1 << 20
	// soon is how long before its end a certificate is warned of.
	soon = 14 * 24 * time.Hour
)

// Files are the paths of PEM files.
type Files struct {
	Cert     string // the certificate of the server, and those of the authorities between it and a root
	Key      string // its private key
	ClientCA string // the authorities of the certificates of clients; "": clients need none
}

// A Fault says what is wrong with a file.
type Fault struct {
	Setting string // that names the file
	Text    string // as the rest of a sentence that begins with the setting
}

func (f *Fault) Error() string { return f.Setting + " " + f.Text }

// A pair is what the files had at one time.
type pair struct {
	config *tls.Config
	leaf   *x509.Certificate
}

// Certificates are what the files have, read again when they change.
type Certificates struct {
	files Files
	now   atomic.Pointer[pair]
	seen  [sha256.Size]byte // of the files when they were read last, good or bad; one goroutine
}

// Open reads the files. An error is a *Fault.
func Open(files Files) (*Certificates, error) {
	c := &Certificates{files: files}
	_, err := c.look()
	return c, err
}

// Expires returns when the certificate of the server ends.
func (c *Certificates) Expires() time.Time { return c.now.Load().leaf.NotAfter }

// left returns how many seconds that is from now, 0 without a certificate.
func (c *Certificates) left() float64 {
	if c == nil {
		return 0
	}
	return time.Until(c.Expires()).Seconds()
}

// config returns what a connection is accepted with: what the files have when its handshake begins.
func (c *Certificates) config() *tls.Config { return c.now.Load().config }

// look reads the files. It reports whether they are not as they were when they were read last, and
// changes nothing where they are bad.
func (c *Certificates) look() (changed bool, _ error) {
	texts, fault := c.files.read()
	var all []byte
	if fault != nil {
		all = []byte(fault.Error())
	}
	for _, t := range texts {
		sum := sha256.Sum256(t)
		all = append(all, sum[:]...)
	}
	sum := sha256.Sum256(all)
	if sum == c.seen {
		return false, nil
	}
	c.seen = sum
	if fault != nil {
		return true, fault
	}
	p, fault := c.files.parse(texts)
	if fault != nil {
		return true, fault
	}
	c.now.Store(p)
	return true, nil
}

// read returns the content of the files, in the order of Files.
func (f Files) read() (texts [3][]byte, _ *Fault) {
	for i, file := range []struct{ setting, path string }{{SettingCert, f.Cert}, {SettingKey, f.Key},
		{SettingClientCA, f.ClientCA}} {
		if file.path == "" {
			continue
		}
		text, err := readFile(file.path)
		if err != nil {
			return texts, &Fault{file.setting, err.Error()}
		}
		texts[i] = text
	}
	return texts, nil
}

func readFile(path string) ([]byte, error) {
	in, err := os.Open(filepath.Clean(path))
	if err != nil {
		return nil, fmt.Errorf("names a file that cannot be read: %s: %w", path, errors.Unwrap(err))
	}
	defer in.Close()
	text, err := io.ReadAll(io.LimitReader(in, mostFile+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("names a file that cannot be read: %s: %w", path, errors.Unwrap(err))
	case len(text) > mostFile:
		return nil, fmt.Errorf("names a file of more than %d bytes: %s", mostFile, path)
	case len(bytes.TrimSpace(text)) == 0:
		return nil, fmt.Errorf("names an empty file: %s", path)
	}
	return text, nil
}

// parse makes the configuration of TLS. It is one for all connections of its time, because the keys
// of its session tickets are its own: a session never outlives the authorities that it was accepted
// with.
func (f Files) parse(texts [3][]byte) (*pair, *Fault) {
	cert, err := tls.X509KeyPair(texts[0], texts[1])
	if err != nil {
		return nil, f.pairFault(texts, err)
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"},
		Certificates: []tls.Certificate{cert}}
	if f.ClientCA != "" {
		config.ClientCAs, config.ClientAuth = x509.NewCertPool(), tls.RequireAndVerifyClientCert
		if !config.ClientCAs.AppendCertsFromPEM(texts[2]) {
			return nil, &Fault{SettingClientCA, "names a file without a certificate in PEM: " + f.ClientCA}
		}
	}
	return &pair{config, cert.Leaf}, nil
}

// pairFault says which of certificate and key is wrong. The words of the library never have the key.
func (f Files) pairFault(texts [3][]byte, err error) *Fault {
	if !x509.NewCertPool().AppendCertsFromPEM(texts[0]) {
		return &Fault{SettingCert, "names a file without a certificate in PEM: " + f.Cert}
	}
	if err.Error() == "tls: private key does not match public key" ||
		err.Error() == "tls: private key type does not match public key type" {
		return &Fault{SettingKey, fmt.Sprintf("names a key (%s) that is not the one of the certificate in %s (%s)", f.Key,
			SettingCert, f.Cert)}
	}
	return &Fault{SettingKey, "names a file without a private key in PEM that can be read without a password: " + f.Key}
}

// watch reads the files again when they change, until ctx ends.
func (f *Front) watch(ctx context.Context) {
	f.sayExpiry(f.o.Certificates)
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			f.reload()
		}
	}
}

// reload looks at the files once.
func (f *Front) reload() {
	c := f.o.Certificates
	changed, err := c.look()
	switch {
	case err != nil:
		f.counts.reloads.WithLabelValues("failed").Inc()
		f.o.Log.Error("the certificate files have changed and are not used; the broker goes on with what they had before",
			"error", err, "expires", c.Expires())
	case changed:
		f.counts.reloads.WithLabelValues("ok").Inc()
		f.o.Log.Info("the certificate files are read again", "subject", c.now.Load().leaf.Subject.String(),
			"expires", c.Expires())
		f.sayExpiry(c)
	}
}

// sayExpiry warns of a certificate that ends soon.
func (f *Front) sayExpiry(c *Certificates) {
	if left := time.Until(c.Expires()); left < soon {
		f.o.Log.Warn("the certificate of the TLS listener ends soon, or has ended",
			"expires", c.Expires(), "file", c.files.Cert)
	}
}
