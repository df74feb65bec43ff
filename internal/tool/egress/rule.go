package egress

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync/atomic"
)

// A Rule decides which addresses a request may reach, by who chose its URL. Requests under
// different rules share no connection.
type Rule uint8

const (
	// ToConsumers is for callbacks. Management configures them: Options.Policy applies. A callback
	// may be a channel of this broker.
	ToConsumers Rule = iota
	// Configured is for the other URLs of management: token endpoints, status and result URLs, reply
	// URLs, the alert webhook. Options.Policy applies, and this process is never dialled.
	Configured
	// ByUsers is for URLs that a producer or consumer names: the file of a bulk, the Location of an
	// answer. Options.Fetch applies, and this process is never dialled.
	ByUsers
	rules
)

// own is where this process listens. Safe for concurrent use.
type own struct {
	at atomic.Pointer[[]netip.AddrPort]
}

// Listens says where this process listens. Call it before the first request.
func (c *Client) Listens(addrs ...net.Addr) {
	var list []netip.AddrPort
	for _, a := range addrs {
		if tcp, ok := a.(*net.TCPAddr); ok {
			at := tcp.AddrPort()
			host := at.Addr().Unmap().WithZone("")
			if !host.IsValid() {
				host = netip.IPv6Unspecified()
			}
			list = append(list, netip.AddrPortFrom(host, at.Port()))
		}
	}
	c.dialer.own.at.Store(&list)
}

// has reports whether a connection to an address may end in this process.
func (o *own) has(to netip.AddrPort) bool {
	list := o.at.Load()
	if list == nil {
		return false
	}
	addr := to.Addr().Unmap().WithZone("")
	inner, embedded := embedded4(addr)
	return slices.ContainsFunc(*list, func(l netip.AddrPort) bool {
		return l.Port() == to.Port() && (reaches(addr, l.Addr()) || embedded && reaches(inner, l.Addr()))
	})
}

// reaches reports whether a connection to an address may end at a listener on another.
func reaches(addr, listener netip.Addr) bool {
	return addr == listener || addr.IsUnspecified() || listener.IsUnspecified() && here(addr)
}

// here reports whether an address is one of this machine. It asks the system each time, because
// addresses come and go; only a dial to a port of this process pays for that.
func here(addr netip.Addr) bool {
	if addr.IsLoopback() {
		return true
	}
	local, err := net.InterfaceAddrs()
	if err != nil {
		return true // a check that cannot be made permits nothing
	}
	for _, a := range local {
		if n, ok := a.(*net.IPNet); ok {
			if at, ok := netip.AddrFromSlice(n.IP); ok && at.Unmap() == addr {
				return true
			}
		}
	}
	return false
}

// check is the last word about an address and port under a rule.
func (d *dialer) check(rule Rule, to netip.AddrPort) error {
	if err := d.policies[rule].CheckAddr(to.Addr()); err != nil {
		return err
	}
	if rule != ToConsumers && d.own.has(to) {
		return fmt.Errorf("%w: the broker itself listens at %s", ErrForbidden, to)
	}
	return nil
}
