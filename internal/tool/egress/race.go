package egress

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"
)

const (
	// attemptDelay is how long the addresses of a host wait for the one before them (RFC 8305, 5 and 8).
	attemptDelay = 250 * time.Millisecond
	// leastDelay is the shortest one (RFC 8305, 8).
	leastDelay = 10 * time.Millisecond
	// maxRacing bounds the attempts to connect to one host at a time.
	maxRacing = 16
	// shunFor is how long an address comes last after another one of its host had to stand in for it.
	shunFor = 10 * time.Minute
)

// A memory knows the addresses that did not answer in time while another one of their host did.
type memory struct {
	mu   sync.Mutex
	last map[netip.AddrPort]time.Time // until when
}

// order puts the addresses of a host into the order in which they are tried: families alternate, the
// one that the resolver has first begins, and what did not answer lately comes last. by turns the
// addresses of each family, so that connections spread over the machines behind a name.
func (m *memory) order(addrs []netip.AddrPort, by int) []netip.AddrPort {
	var lead, other []netip.AddrPort
	for _, a := range addrs {
		if a.Addr().Is4() == addrs[0].Addr().Is4() {
			lead = append(lead, a)
		} else {
			other = append(other, a)
		}
	}
	all := make([]netip.AddrPort, 0, len(addrs))
	for i := range max(len(lead), len(other)) {
		if i < len(lead) {
			all = append(all, lead[(i+by)%len(lead)])
		}
		if i < len(other) {
			all = append(all, other[(i+by)%len(other)])
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.last) == 0 {
		return all
	}
	now := time.Now()
	var shunned []netip.AddrPort
	first := all[:0]
	for _, a := range all {
		if now.Before(m.last[a]) {
			shunned = append(shunned, a)
		} else {
			first = append(first, a)
		}
	}
	return append(first, shunned...)
}

// won notes that an address answered before those which were tried earlier.
func (m *memory) won(winner netip.AddrPort, earlier []netip.AddrPort) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.last, winner)
	if len(earlier) == 0 {
		return
	}
	if m.last == nil {
		m.last = map[netip.AddrPort]time.Time{}
	}
	now := time.Now()
	if len(m.last) >= maxNames {
		for a, until := range m.last {
			if !now.Before(until) || len(m.last) >= maxNames {
				delete(m.last, a)
			}
		}
	}
	for _, a := range earlier {
		m.last[a] = now.Add(shunFor)
	}
}

// A racer is the end of one attempt to connect.
type racer struct {
	no   int
	conn net.Conn
	err  error
}

// The end of a request is a value of its context, because net/http lets a dial outlive it.
type endOf struct{}

// untilEnd returns a context in which a dial knows the end of the request that wants it.
func untilEnd(ctx context.Context) context.Context {
	if end, ok := ctx.Deadline(); ok {
		return context.WithValue(ctx, endOf{}, end)
	}
	return ctx
}

// delayFor is how long each of n addresses waits for the one before it, so that all have a turn before
// the request ends.
func delayFor(ctx context.Context, n int) time.Duration {
	end, ok := ctx.Value(endOf{}).(time.Time)
	if !ok {
		end, ok = ctx.Deadline()
	}
	if !ok {
		return attemptDelay
	}
	return max(min(attemptDelay, time.Until(end)/time.Duration(n+1)), leastDelay)
}

// race connects to the first of several addresses that answers (RFC 8305, Happy Eyeballs). Each one
// is tried when the one before it has failed, or has not answered for attemptDelay, or less where
// time is short. Attempts that lose have ended when race returns.
func race(ctx context.Context, addrs []netip.AddrPort, connect func(context.Context, netip.AddrPort) (net.Conn,
	error)) (winner int, conn net.Conn, err error) {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer func() {
		cancel()
		wg.Wait()
	}()
	pace := delayFor(ctx, len(addrs))
	ended := make(chan racer)
	next, running := 0, 0
	delay := time.NewTimer(0)
	defer delay.Stop()
	start := func() {
		no := next
		next++
		running++
		wg.Go(func() {
			try, stop := ctx, context.CancelFunc(func() {})
			if len(addrs) > maxRacing {
				try, stop = context.WithTimeout(ctx, maxRacing*attemptDelay)
			}
			defer stop()
			conn, err := connect(try, addrs[no])
			select {
			case ended <- racer{no, conn, err}:
			case <-ctx.Done():
				if conn != nil {
					_ = conn.Close()
				}
			}
		})
		delay.Reset(pace)
	}
	for {
		select {
		case <-ctx.Done():
			return 0, nil, reason(err, ctx.Err())
		case <-delay.C:
			if next < len(addrs) && running < maxRacing { // else the next end begins another
				start()
			}
		case r := <-ended:
			running--
			if r.err == nil {
				return r.no, r.conn, nil
			}
			err = reason(err, r.err)
			switch {
			case next < len(addrs):
				start()
			case running == 0:
				return 0, nil, err
			}
		}
	}
}

// reason returns which of two failures tells more. Without descriptors or memory no attempt says
// anything about the host; a missing address of this machine says nothing where the other family
// has been tried.
func reason(before, after error) error {
	switch {
	case before == nil, errors.Is(before, syscall.EADDRNOTAVAIL):
		return after
	case local(before), errors.Is(after, syscall.EADDRNOTAVAIL):
		return before
	}
	return after
}
