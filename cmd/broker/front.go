package main

import (
	"errors"
	"net"

	"github.com/penstock-broker/penstock/api"
	"github.com/penstock-broker/penstock/internal/feature/front"
	"github.com/penstock-broker/penstock/internal/feature/principal"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/tool/share"
)

// listens are the addresses of all listeners.
func (c *config) listens() []string {
	all := []string{c.Listen}
	for _, address := range []string{c.TLSListen, c.H2CListen} {
		if address != "" {
			all = append(all, address)
		}
	}
	return all
}

// checkAddress checks the address of a listener, and that who reaches it needs a token.
func (c *config) checkAddress(f *faults, setting, address, example string) {
	host, port, err := net.SplitHostPort(address)
	if err == nil {
		_, err = net.LookupPort("tcp", port)
	}
	if err != nil {
		f.add(setting, "must be host:port, like %s, not %q", example, address)
	} else if c.AdminToken == "" && !isLoopback(host) && f.fine("BROKER_ADMIN_TOKEN") {
		f.add(setting, "%q is reachable from other machines, which needs BROKER_ADMIN_TOKEN; without one the "+
			"broker listens on loopback only", address)
	}
}

// tlsFiles are the files of the TLS listener.
func (c *config) tlsFiles() front.Files {
	return front.Files{Cert: c.TLSCert, Key: c.TLSKey, ClientCA: c.TLSClientCA}
}

// checkFront checks the listeners of HTTP/2 and TLS, and reads the certificate.
func (c *config) checkFront(f *faults) {
	if c.H2CListen != "" {
		c.checkAddress(f, "BROKER_H2C_LISTEN", c.H2CListen, "127.0.0.1:8081")
	}
	if c.TLSListen != "" {
		c.checkAddress(f, "BROKER_TLS_LISTEN", c.TLSListen, "0.0.0.0:8443")
	}
	whole := f.fine(front.SettingCert, front.SettingKey, front.SettingClientCA)
	switch {
	case !whole: // its file could not be read as a setting
	case c.TLSCert != "" && c.TLSKey == "":
		f.add(front.SettingKey, "is missing: %s needs the private key of the certificate", front.SettingCert)
	case c.TLSKey != "" && c.TLSCert == "":
		f.add(front.SettingCert, "is missing: %s is the key of a certificate", front.SettingKey)
	case c.TLSClientCA != "" && c.TLSCert == "":
		f.add(front.SettingClientCA, "needs BROKER_TLS_LISTEN with %s and %s: clients show certificates only there",
			front.SettingCert, front.SettingKey)
	case c.TLSListen != "" && c.TLSCert == "":
		f.add("BROKER_TLS_LISTEN", "needs %s and %s", front.SettingCert, front.SettingKey)
	case c.TLSListen == "" && c.TLSCert != "":
		f.add("BROKER_TLS_LISTEN", "is missing: %s is for the listener with TLS", front.SettingCert)
	case c.TLSCert != "":
		var wrong *front.Fault
		if _, err := front.Open(c.tlsFiles()); errors.As(err, &wrong) {
			f.add(wrong.Setting, "%s", wrong.Text)
		}
	}
}

// checkPrincipals reads what client certificates stand for.
func (c *config) checkPrincipals(f *faults) {
	const setting = "BROKER_TLS_PRINCIPALS"
	var err error
	switch c.principals, err = principal.Parse(c.Principals); {
	case err != nil:
		f.add(setting, "%v", err)
	case c.principals != nil && c.TLSClientCA == "" && f.fine(front.SettingClientCA):
		f.add(setting, "needs %s: without it no client shows a certificate that was checked", front.SettingClientCA)
	}
}

// certified are the grants of client certificates, by their IDs.
func (c *config) certified() map[string]*catalogue.Grant {
	all := map[string]*catalogue.Grant{}
	for _, e := range c.principals.Entries() {
		all[e.ID] = catalogue.CertifiedGrant(e.ID, e.Subject, e.Token, e.Scopes)
	}
	return all
}

// mostStreams bounds the requests of HTTP/2 under way. Each has a worker of the HTTP/1.1 server.
const mostStreams = 32 << 10

// newStreams returns the bound of requests of HTTP/2 where there may be so many connections.
func newStreams(connections int) *share.Bound {
	return share.New(share.Options{Name: "streams", Most: int64(min(connections, mostStreams))})
}

// listen opens the listeners.
func (b *broker) listen() (err error) {
	if b.listener, err = net.Listen("tcp", b.cfg.Listen); err != nil {
		return aboutSetting("BROKER_LISTEN", err)
	}
	if b.front, err = b.newFront(); err != nil {
		return err
	}
	b.client.Listens(append(append(b.embedded.addrs(), b.listener.Addr()), b.front.Addrs()...)...)
	return nil
}

// newFront opens the listeners of HTTP/2 and TLS that are set.
func (b *broker) newFront() (*front.Front, error) {
	o := front.Options{Serve: b.server.Serve, Streams: b.streams, Registry: b.registry, Log: b.log}
	var err error
	if b.cfg.TLSListen != "" {
		if o.Certificates, err = front.Open(b.cfg.tlsFiles()); err != nil {
			return nil, errors.Join(errSettings, err)
		}
	}
	for _, l := range []struct {
		setting, address string
		to               *net.Listener
	}{{"BROKER_TLS_LISTEN", b.cfg.TLSListen, &o.TLS}, {"BROKER_H2C_LISTEN", b.cfg.H2CListen, &o.H2C}} {
		if l.address == "" {
			continue
		}
		ln, err := net.Listen("tcp", l.address)
		if err != nil {
			return nil, aboutSetting(l.setting, err)
		}
		b.log.Info("another listener", "setting", l.setting, "listen", ln.Addr().String())
		*l.to = api.Listen(ln, b.places)
	}
	return front.New(o), nil
}
