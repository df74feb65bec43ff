package egress

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
)

// metadataNames are host names that only a cloud's metadata service answers to.
var metadataNames = map[string]bool{
	"metadata":                     true,
	"metadata.goog":                true,
	"metadata.google.internal":     true,
	"metadata.azure.internal":      true,
	"metadata.tencentyun.com":      true,
	"instance-data":                true,
	"instance-data.ec2.internal":   true,
	"metadata.platformequinix.com": true,
}

// CheckURL returns nil if raw may be a callback URL: absolute, http or https,
// with a host, without user name or fragment, of visible ASCII, and not naming
// an address that the policy forbids. A host name is not looked up: it is
// checked at each delivery. The error is a sentence for the person who
// registers the callback.
func (p Policy) CheckURL(raw string) error {
	_, err := p.parse(raw)
	return err
}

// Origin returns scheme, host and port of a URL in one spelling, so that two origins can be
// compared; "" where CheckURL refuses the URL whatever the policy.
func Origin(raw string) string {
	d, _, err := split(raw)
	if err != nil {
		return ""
	}
	return d.parsed.Scheme + "://" + d.address()
}

// Plain returns a URL in its usual spelling, so that URLs of one resource can be compared: scheme and
// host in small letters, the host without a final dot, no default port, and a path. A URL that CheckURL
// refuses whatever the policy is returned as it is.
func Plain(raw string) string {
	d, _, err := split(raw)
	if err != nil {
		return raw
	}
	host := d.address()
	if d.port == d.usualPort() {
		host = strings.TrimSuffix(host, ":"+d.port)
	}
	return d.parsed.Scheme + "://" + host + d.uri
}

// A destination is a callback URL taken apart.
type destination struct {
	tls  bool
	host string // lower case, without brackets and final dot: what is dialled and named in TLS
	port string
	// authority and uri are sent: the Host header and the request target.
	authority string
	uri       string
	parsed    *url.URL
}

func (p Policy) parse(raw string) (destination, error) {
	d, addr, err := split(raw)
	if err == nil {
		err = p.checkHost(d.host, addr)
	}
	return d, err
}

// split takes a URL apart. addr is the host, if that is an address and no name.
func split(raw string) (d destination, addr netip.Addr, err error) {
	for i := 0; i < len(raw); i++ {
		if c := raw[i]; c <= ' ' || c >= 0x7f || c == '\\' {
			return d, addr, errors.New("egress: a callback URL holds visible ASCII only: percent-encode the rest")
		}
	}
	u, err := url.Parse(raw)
	if err != nil {
		return d, addr, errors.New("egress: not a URL")
	}
	switch u.Scheme {
	case "http", "https":
		d.tls = u.Scheme == "https"
	default:
		return d, addr, errors.New("egress: a callback URL starts with http:// or https://")
	}
	switch {
	case u.Opaque != "" || u.Hostname() == "":
		return d, addr, errors.New("egress: a callback URL names a host")
	case u.User != nil:
		return d, addr, errors.New("egress: a callback URL has no user name or password in it")
	case strings.Contains(raw, "#"):
		return d, addr, errors.New("egress: a callback URL has no fragment (#)")
	}
	d.port = u.Port()
	if d.port == "" {
		if strings.HasSuffix(u.Host, ":") {
			return d, addr, errors.New("egress: the port is missing after the colon")
		}
		d.port = d.usualPort()
	} else {
		n, err := strconv.Atoi(d.port)
		if err != nil || n < 1 || n > 65535 {
			return d, addr, errors.New("egress: a port is 1 to 65535")
		}
		d.port = strconv.Itoa(n)
	}
	if d.host, addr, err = plainHost(u.Hostname()); err != nil {
		return d, addr, err
	}
	d.parsed = u
	d.authority = u.Host
	d.uri = u.EscapedPath()
	if d.uri == "" {
		d.uri = "/"
	}
	if u.RawQuery != "" || u.ForceQuery {
		d.uri += "?" + u.RawQuery
	}
	return d, addr, nil
}

func (d destination) address() string { return net.JoinHostPort(d.host, d.port) }

func (d destination) usualPort() string {
	if d.tls {
		return "443"
	}
	return "80"
}

// parseHost tells an address from a name. A name whose last label is a number
// is read as the C library and browsers read it, in any base and with fewer than
// four parts (2130706433, 0x7f.1, 0177.0.0.1), so that such a spelling cannot
// slip past the checks of an address.
func parseHost(host string) (addr netip.Addr, literal bool, err error) {
	if addr, err := netip.ParseAddr(host); err == nil {
		if addr.Zone() != "" {
			return addr, true, fmt.Errorf("%w: an address with a zone is local to a link", ErrForbidden)
		}
		return addr, true, nil
	}
	if host == "" || len(host) > 253 {
		return addr, false, errors.New("egress: a host name has 1 to 253 characters")
	}
	labels := strings.Split(host, ".")
	for _, l := range labels {
		if l == "" || len(l) > 63 {
			return addr, false, errors.New("egress: not a host name")
		}
		for i := 0; i < len(l); i++ {
			c := l[i]
			if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && c != '_' {
				return addr, false, errors.New("egress: a host name holds letters, digits, '-' and '.': write others as punycode")
			}
		}
	}
	if last := labels[len(labels)-1]; last[0] < '0' || last[0] > '9' || strings.Trim(last, "0123456789abcdefx") != "" {
		return addr, false, nil
	}
	addr, ok := parseNumeric4(labels)
	if !ok {
		return addr, false, errors.New("egress: a host that ends in a number must be an IPv4 address")
	}
	return addr, true, nil
}

// parseNumeric4 reads an IPv4 address as inet_aton does: one to four numbers in
// decimal, octal (0...) or hexadecimal (0x...), the last one filling what remains.
func parseNumeric4(parts []string) (netip.Addr, bool) {
	if len(parts) > 4 {
		return netip.Addr{}, false
	}
	var v uint64
	for i, s := range parts {
		base := 10
		switch {
		case strings.HasPrefix(s, "0x"):
			base, s = 16, s[2:]
			if s == "" {
				s = "0"
			}
		case len(s) > 1 && s[0] == '0':
			base = 8
		}
		n, err := strconv.ParseUint(s, base, 32)
		if err != nil {
			return netip.Addr{}, false
		}
		bits := 8
		if i == len(parts)-1 {
			bits = 8 * (5 - len(parts))
		}
		if n >= 1<<bits {
			return netip.Addr{}, false
		}
		v = v<<bits | n
	}
	return netip.AddrFrom4([4]byte{byte(v >> 24), byte(v >> 16), byte(v >> 8), byte(v)}), true
}
