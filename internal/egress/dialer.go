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

// minDialShare is the least time that one of several addresses of a host gets:
// less would give up on a distant one (a lost SYN is repeated after 1 s).
const minDialShare = 1500 * time.Millisecond

// A dialer connects to addresses that the policy allows, and to no others.
type dialer struct {
	policies [rules]Policy
	own      own
	names    resolver
	life     context.Context // of the client
	turn     atomic.Uint32   // rotates over the addresses of a host
}

// A dialError says that there is no connection, so nothing was sent.
type dialError struct{ err error }

func (e *dialError) Error() string { return "egress: connect: " + e.err.Error() }
func (e *dialError) Unwrap() error { return e.err }

// dial resolves the host of address, drops the candidates that the rule
// forbids and tries the others one after the other until ctx ends.
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
	rotate(allowed, int(d.turn.Add(1)))
	for i, a := range allowed {
		var conn net.Conn
		conn, err = d.connect(ctx, rule, a, len(allowed)-i)
		if err == nil {
			return conn, nil
		}
		if ctx.Err() != nil || local(err) {
			break
		}
	}
	return nil, err
}

// connect dials one address, giving it a fair share of the time that is left.
func (d *dialer) connect(ctx context.Context, rule Rule, to netip.AddrPort, candidates int) (net.Conn, error) {
	if deadline, ok := ctx.Deadline(); ok && candidates > 1 {
		share := max(time.Until(deadline)/time.Duration(candidates), minDialShare)
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, share)
		defer cancel()
	}
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

// rotate turns the leading addresses of one family, so that connections spread
// over the machines behind a name, and leaves the order of families, which the
// resolver sorts by reachability from this machine.
func rotate(addrs []netip.AddrPort, by int) {
	n := 1
	for n < len(addrs) && addrs[n].Addr().Is4() == addrs[0].Addr().Is4() {
		n++
	}
	by %= n
	lead := append(append([]netip.AddrPort(nil), addrs[by:n]...), addrs[:by]...)
	copy(addrs, lead)
}

// local reports whether err is about this machine and not about the consumer:
// no file descriptor, port, memory or buffer left.
func local(err error) bool {
	for _, e := range []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.EADDRNOTAVAIL, ErrClosed, ErrBusy} {
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
