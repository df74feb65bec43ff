// Package forwarded finds the address of a client behind proxies that the operator trusts.
//
// X-Forwarded-For counts only on a connection of a trusted proxy, and only from its right end: each trusted proxy
// has appended the address that it saw. The first address from the right that is no trusted proxy is the client's.
// What is left of it was sent by the client itself, and may be anything.
package forwarded

import (
	"bytes"
	"fmt"
	"net/netip"
	"strings"

	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/internal/tool/share"
)

// Trusted are the networks of proxies. The zero value trusts none.
type Trusted struct{ networks []netip.Prefix }

// Parse reads networks in CIDR form; an address alone is a network of one.
func Parse(cidrs []string) (t Trusted, err error) {
	for _, text := range cidrs {
		text = strings.TrimSpace(text)
		network, err := netip.ParsePrefix(text)
		if err != nil {
			one, err := netip.ParseAddr(text)
			if err != nil || one.Zone() != "" {
				return Trusted{}, fmt.Errorf("%q is no network like 10.0.0.0/8, and no address", text[:min(len(text), 64)])
			}
			network = netip.PrefixFrom(one, one.BitLen())
		}
		if network.Addr().Is4In6() {
			return Trusted{}, fmt.Errorf("%q must be written as IPv4", text[:min(len(text), 64)])
		}
		t.networks = append(t.networks, network.Masked())
	}
	return t, nil
}

func (t Trusted) has(a netip.Addr) bool {
	for _, network := range t.networks {
		if network.Contains(a) {
			return true
		}
	}
	return false
}

// mostHops bounds how many addresses are read.
const mostHops = 32

// Client returns the address of the client of a request. It allocates nothing where no proxy is trusted.
func (t Trusted) Client(rc *fasthttp.RequestCtx) netip.Addr {
	peer := share.AddressOf(rc.RemoteAddr()).Unmap()
	if len(t.networks) == 0 || !t.has(peer) {
		return peer
	}
	lines := rc.Request.Header.PeekAll(fasthttp.HeaderXForwardedFor)
	at := peer
	for i, hops := len(lines)-1, 0; i >= 0; i-- {
		for line := lines[i]; ; hops++ {
			comma := bytes.LastIndexByte(line, ',')
			hop, ok := address(line[comma+1:])
			if !ok || hops == mostHops {
				return at // what a proxy wrote is no address: nothing to the left of it can be believed
			}
			at = hop
			if !t.has(hop) {
				return hop
			}
			if comma < 0 {
				break
			}
			line = line[:comma]
		}
	}
	return at
}

// address reads one hop: an address, with a port where a proxy writes one.
func address(hop []byte) (netip.Addr, bool) {
	text := string(bytes.TrimSpace(hop))
	if len(text) > 64 {
		return netip.Addr{}, false
	}
	if a, err := netip.ParseAddr(text); err == nil {
		return a.WithZone("").Unmap(), true
	}
	if ap, err := netip.ParseAddrPort(text); err == nil {
		return ap.Addr().WithZone("").Unmap(), true
	}
	if a, err := netip.ParseAddr(strings.Trim(text, "[]")); err == nil && strings.HasPrefix(text, "[") {
		return a.WithZone("").Unmap(), true
	}
	return netip.Addr{}, false
}
