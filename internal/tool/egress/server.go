package egress

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"time"
)

// dialTimeout bounds a connect and a TLS handshake, each, of connections that outlive the request that
// wanted them.
const dialTimeout = 10 * time.Second

// CheckHost returns the host of a server of any protocol as Dial takes it: an address, or a name in small
// letters. The error says that it is neither, or that the policy forbids it. A name is not looked up.
func (p Policy) CheckHost(host string) (string, error) {
	plain, addr, err := plainHost(host)
	if err == nil {
		err = p.checkHost(plain, addr)
	}
	return plain, err
}

// checkHost checks what plainHost has returned.
func (p Policy) checkHost(host string, addr netip.Addr) error {
	switch {
	case addr.IsValid():
		return p.CheckAddr(addr)
	case metadataNames[host]:
		return fmt.Errorf("%w: %s is a cloud metadata service", ErrForbidden, host)
	}
	return nil
}

// plainHost returns a host in one spelling. addr is valid where it is an address and no name.
func plainHost(host string) (plain string, addr netip.Addr, err error) {
	plain = strings.ToLower(strings.TrimSuffix(host, "."))
	addr, literal, err := parseHost(plain)
	if err != nil || !literal {
		return plain, netip.Addr{}, err
	}
	return addr.Unmap().String(), addr, nil
}

// Dial connects to a host and port under a rule, within 10 s. Close of the client cuts the connection. The
// error is one for Unconnected.
func (c *Client) Dial(ctx context.Context, rule Rule, address string) (net.Conn, error) {
	// net/http lets a dial outlive the request that wanted it.
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	defer context.AfterFunc(c.dialer.life, cancel)()
	tcp, err := c.dialer.dial(ctx, rule, address)
	if err != nil {
		return nil, err
	}
	return &trackedConn{conn: newConn(c, tcp)}, nil
}

// A trackedConn is one that its user owns, cut at Close like the others.
type trackedConn struct{ *conn }

func (t *trackedConn) Close() error {
	t.conn.close()
	return nil
}

// Secure does the TLS handshake with a host over a connection of Dial, before ctx ends. The error is one for
// Unconnected; the connection is of no use then.
func (c *Client) Secure(ctx context.Context, conn net.Conn, host string) (net.Conn, error) {
	shake, config := new(handshake), c.opts.TLS.Clone()
	config.ServerName = host
	secure := tls.Client(conn, config)
	if err := secure.HandshakeContext(shake.in(ctx)); err != nil {
		return nil, c.handshakeFailure(ctx, shake, err)
	}
	return secure, nil
}

// Unconnected is the end of an attempt for which there was no connection, with an error of Dial or Secure.
func Unconnected(err error) Result { return failed(err, false) }
