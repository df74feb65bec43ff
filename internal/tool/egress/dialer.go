package egress

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"
)

// A dialer connects to addresses that the policy allows, and to no others.
type dialer struct {
	policies [rules]Policy
	own      own
	names    resolver
	life     context.Context // of the client
	turn     atomic.Uint32   // rotates over the addresses of a host
	memory   memory
}

// A dialError says that there is no connection, so nothing was sent.
type dialError struct{ err error }

func (e *dialError) Error() string { return "egress: connect: " + e.err.Error() }
func (e *dialError) Unwrap() error { return e.err }

// dial resolves the host of address, drops the candidates that the rule forbids and connects to the
// first of the others that answers before ctx ends.
func (d *dialer) dial(ctx context.Context, rule Rule, address string) (net.Conn, error) {
	conn, err := d.try(ctx, rule, address)
	if err == nil {
		return conn, nil
	}
	if d.life.Err() != nil {
		err = ErrClosed
	} else if ctx.Err() != nil || isTimeout(err) {
		err = fmt.Errorf("%w (%w)", ErrTimeout, err)
	}
	return nil, &dialError{err}
}

func (d *dialer) try(ctx context.Context, rule Rule, address string) (net.Conn, error) {
	host, service, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	port, err := strconv.ParseUint(service, 10, 16)
	if err != nil {
		return nil, err
	}
	addrs, err := d.names.addrs(ctx, d.life, host)
	if err != nil {
		return nil, err
	}
	allowed := make([]netip.AddrPort, 0, len(addrs))
	for _, a := range addrs {
		to := netip.AddrPortFrom(a.Unmap(), uint16(port))
		if e := d.check(rule, to); e != nil {
			err = e
			continue
		}
		allowed = append(allowed, to)
	}
	if len(allowed) == 0 {
		return nil, err
	}
	connect := func(ctx context.Context, to netip.AddrPort) (net.Conn, error) { return d.connect(ctx, rule, to) }
	if len(allowed) == 1 {
		return connect(ctx, allowed[0])
	}
	allowed = d.memory.order(allowed, int(d.turn.Add(1)))
	winner, conn, err := race(ctx, allowed, connect)
	if err == nil {
		d.memory.won(allowed[winner], allowed[:winner])
	}
	return conn, err
}

// connect dials one address.
func (d *dialer) connect(ctx context.Context, rule Rule, to netip.AddrPort) (net.Conn, error) {
	nd := net.Dialer{
		KeepAlive: 15 * time.Second,
		Control: func(_, address string, _ syscall.RawConn) error {
			// The last word is about the address in the system call.
			ap, err := netip.ParseAddrPort(address)
			if err != nil {
				return err
			}
			return d.check(rule, ap)
		},
	}
	return nd.DialContext(ctx, "tcp", to.String())
}

// local reports whether err is about this machine and not about the consumer:
// no file descriptor, port, memory or buffer left.
func local(err error) bool {
	for _, e := range []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.EADDRNOTAVAIL,
		ErrClosed, ErrBusy} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

func isTimeout(err error) bool {
	var t interface{ Timeout() bool }
	return errors.Is(err, context.DeadlineExceeded) || errors.As(err, &t) && t.Timeout()
}
