package egress

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
)

// ErrForbidden says that the policy does not let a callback reach the address.
var ErrForbidden = errors.New("egress: address not allowed")

// A Policy says which addresses callbacks may reach. The zero Policy is the
// private one. It is immutable and safe for concurrent use.
type Policy struct {
	public bool
	allow  []netip.Prefix
}

// ParsePolicy returns the policy of that mode. "private" (or "") permits
// everything but addresses no consumer can live at: link-local, cloud metadata,
// multicast, unspecified and reserved ones. "public" permits only addresses that
// are reachable from the whole internet. A CIDR of allow, such as 10.1.0.0/16,
// is permitted in either mode, whatever it covers.
func ParsePolicy(mode string, allow []string) (Policy, error) {
	var p Policy
	switch mode {
	case "", "private":
	case "public":
		p.public = true
	default:
		return Policy{}, fmt.Errorf("egress: mode must be private or public, not %q", mode)
	}
	for _, s := range allow {
		if s = strings.TrimSpace(s); s == "" {
			continue
		}
		prefix, err := netip.ParsePrefix(s)
		if err != nil {
			addr, err := netip.ParseAddr(s)
			if err != nil || addr.Zone() != "" {
				return Policy{}, fmt.Errorf("egress: %q is not a CIDR such as 10.1.0.0/16", s)
			}
			prefix = netip.PrefixFrom(addr, addr.BitLen())
		}
		if prefix.Addr().Is4In6() {
			if prefix.Bits() < 96 {
				return Policy{}, fmt.Errorf("egress: write %q as an IPv4 CIDR", s)
			}
			prefix = netip.PrefixFrom(prefix.Addr().Unmap(), prefix.Bits()-96)
		}
		p.allow = append(p.allow, prefix.Masked())
	}
	return p, nil
}

// CheckAddr returns nil if a callback may reach addr, else an error that is
// ErrForbidden and says why.
func (p Policy) CheckAddr(addr netip.Addr) error {
	if !addr.IsValid() {
		return fmt.Errorf("%w: not an address", ErrForbidden)
	}
	if addr.Zone() != "" {
		return fmt.Errorf("%w: %s has a zone, it is local to a link", ErrForbidden, addr)
	}
	addr = addr.Unmap()
	for _, prefix := range p.allow {
		if prefix.Contains(addr) {
			return nil
		}
	}
	if why := denied(addr, never); why != "" {
		return fmt.Errorf("%w: %s is %s", ErrForbidden, addr, why)
	}
	if p.public {
		if why := denied(addr, notPublic); why != "" {
			return fmt.Errorf("%w: %s is %s", ErrForbidden, addr, why)
		}
		if addr.Is6() && !globalUnicast6.Contains(addr) && !nat64.Contains(addr) {
			return fmt.Errorf("%w: %s is not a global unicast address", ErrForbidden, addr)
		}
	}
	// A router or host may deliver a packet for these IPv6 addresses to the IPv4
	// address inside, so the inner one must be permitted as well.
	if inner, ok := embedded4(addr); ok {
		return p.CheckAddr(inner)
	}
	return nil
}

// A special is a block of addresses with a meaning of its own.
type special struct {
	prefix netip.Prefix
	what   string
}

func denied(addr netip.Addr, list []special) string {
	for _, s := range list {
		if s.prefix.Contains(addr) {
			return s.what
		}
	}
	return ""
}

func specials(what string, prefixes ...string) []special {
	list := make([]special, len(prefixes))
	for i, s := range prefixes {
		list[i] = special{netip.MustParsePrefix(s), what}
	}
	return list
}

func join(lists ...[]special) (all []special) {
	for _, l := range lists {
		all = append(all, l...)
	}
	return all
}

// never holds what both modes refuse. Metadata services hand credentials to
// any client on the machine, so they come first and have the clearer name.
// Sources: the providers' documentation, IANA special-purpose registries.
var never = join(
	specials("a cloud metadata address",
		"169.254.169.254/32",     // AWS, Azure, Google, DigitalOcean, Oracle, OpenStack
		"169.254.170.0/24",       // AWS container credentials
		"100.100.100.200/32",     // Alibaba
		"168.63.129.16/32",       // Azure host agent
		"192.0.0.192/32",         // Oracle, older
		"fd00:ec2::/32",          // AWS over IPv6
		"fd20:ce::254/128",       // Google over IPv6
		"fd00:42::42/128",        // Scaleway over IPv6
		"fd00:c1::a9fe:a9fe/128", // Oracle over IPv6
	),
	specials("link-local", "169.254.0.0/16", "fe80::/10"),
	specials("unspecified", "0.0.0.0/8", "::/128"),
	specials("multicast or reserved", "224.0.0.0/3", "ff00::/8"),
)

// notPublic holds what the public mode refuses besides.
var notPublic = join(
	specials("a loopback address", "127.0.0.0/8", "::1/128"),
	specials("a private address", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7", "fec0::/10"),
	specials("shared by carriers (RFC 6598)", "100.64.0.0/10"),
	specials("for protocols, tests or documentation",
		"192.0.0.0/24", "192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24", "198.18.0.0/15",
		"192.88.99.0/24", "2001::/23", "2001:db8::/32", "3fff::/20", "64:ff9b:1::/48"),
	specials("a tunnel to IPv4 (6to4)", "2002::/16"),
)

var (
	globalUnicast6 = netip.MustParsePrefix("2000::/3")
	nat64          = netip.MustParsePrefix("64:ff9b::/96")
	nat64Local     = netip.MustParsePrefix("64:ff9b:1::/48")
	translated     = netip.MustParsePrefix("::ffff:0:0:0/96") // RFC 7915
	sixToFour      = netip.MustParsePrefix("2002::/16")
	teredo         = netip.MustParsePrefix("2001::/32")
	compatible4    = netip.MustParsePrefix("::/96")
)

// embedded4 returns the IPv4 address inside an IPv6 one of a translation or
// tunnel block.
func embedded4(addr netip.Addr) (netip.Addr, bool) {
	if !addr.Is6() {
		return netip.Addr{}, false
	}
	b := addr.As16()
	tail := netip.AddrFrom4([4]byte(b[12:16]))
	switch {
	case nat64.Contains(addr), nat64Local.Contains(addr), translated.Contains(addr):
		return tail, true
	case sixToFour.Contains(addr):
		return netip.AddrFrom4([4]byte(b[2:6])), true
	case teredo.Contains(addr): // the client's address, inverted
		return netip.AddrFrom4([4]byte{^b[12], ^b[13], ^b[14], ^b[15]}), true
	case compatible4.Contains(addr) && addr != netip.IPv6Loopback():
		return tail, true
	case b[8]|2 == 2 && b[9] == 0 && b[10] == 0x5e && b[11] == 0xfe: // ISATAP
		return tail, true
	}
	return netip.Addr{}, false
}
