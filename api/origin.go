package api

import (
	"bytes"
	"net"
	"net/netip"
	"net/url"
	"strings"

	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/internal/model/problem"
	"github.com/penstock-broker/penstock/internal/tool/egress"
)

var (
	errHost = problem.New(fasthttp.StatusForbidden, "host_not_allowed",
		"Management without a token accepts as Host a loopback name, the address on which the broker listens, or a name "+
			"in BROKER_ALLOWED_HOSTS. Send one of these, or a token.")
	errOwnRequest = problem.New(fasthttp.StatusForbidden, "made_by_broker",
		"Management without a token refuses the requests of brokers: a URL that a broker was told to ask leads back here. "+
			"Send a token, or another User-Agent.")
	errOrigin = problem.New(fasthttp.StatusForbidden, "origin_not_allowed",
		"Management without a token refuses a browser's requests from pages of other sites.")
)

// checkOpen decides whether a request without a token may use open management. A request
// that reaches the listener need not be local: a page of any site can make a browser on
// this machine send it, under a name that the site's DNS resolves to loopback (DNS
// rebinding). Such a request cannot hide that name: the browser sets Host, Origin and
// Sec-Fetch-Site, and the page cannot change them. checkOpen ignores X-Forwarded-Host and
// Forwarded, which any client can set.
func (a *API) checkOpen(rc *fasthttp.RequestCtx) error {
	h := &rc.Request.Header
	if a.madeByBroker(h) {
		return errOwnRequest
	}
	if !a.namedHere(rc, string(h.Host())) {
		return errHost
	}
	// A target in absolute form contains a host, which takes precedence over Host (RFC 9112,
	// 3.2.2). URL parsers disagree about it, so this check uses fasthttp's result, as the
	// router does.
	if target := h.RequestURI(); !bytes.HasPrefix(target, []byte("/")) {
		u, err := url.Parse(string(target))
		if err != nil || u.User != nil || !a.namedHere(rc, u.Host) {
			return errHost
		}
	}
	if !a.namedHere(rc, string(rc.URI().Host())) {
		return errHost
	}
	for _, origin := range h.PeekAll(fasthttp.HeaderOrigin) {
		u, err := url.Parse(string(origin))
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.User != nil || !a.namedHere(rc, u.Host) {
			return errOrigin
		}
	}
	for _, site := range h.PeekAll("Sec-Fetch-Site") {
		if string(site) == "cross-site" {
			return errOrigin
		}
	}
	return nil
}

// madeByBroker reports whether a broker of this or another installation sent a request, because a
// user named this broker in a URL. The header is the proof; the User-Agent covers deliveries and
// brokers of other versions.
func (a *API) madeByBroker(h *fasthttp.RequestHeader) bool {
	agent := string(h.UserAgent())
	product, _, _ := strings.Cut(agent, "/")
	return len(h.PeekAll(egress.MadeByBroker)) > 0 || agent != "" && agent == a.o.UserAgent ||
		strings.EqualFold(product, egress.Product)
}

// namedHere reports whether host, with or without a port, names this broker: as loopback,
// by the local address of the connection, or by a name in AllowedHosts. A name can be
// rebound to another machine, an address cannot.
func (a *API) namedHere(rc *fasthttp.RequestCtx, host string) bool {
	name, ok := hostname(host)
	if !ok {
		return false
	}
	if name == "localhost" || a.hosts[name] {
		return true
	}
	addr, err := netip.ParseAddr(name)
	if err != nil || addr.Zone() != "" {
		return false
	}
	if addr = addr.Unmap(); addr.IsLoopback() {
		return true
	}
	local, ok := rc.LocalAddr().(*net.TCPAddr)
	return ok && local.AddrPort().Addr().WithZone("").Unmap() == addr
}

// hostname returns the name or address in the value of a Host header, in lower
// case, without port, brackets and the final dot of a name. It refuses every other value.
func hostname(host string) (string, bool) {
	name, port := host, ""
	if end := strings.IndexByte(host, ']'); strings.HasPrefix(host, "[") && end > 0 {
		name, port = host[1:end], host[end+1:]
		if !strings.Contains(name, ":") {
			return "", false
		}
	} else {
		if colon := strings.IndexByte(host, ':'); colon >= 0 {
			name, port = host[:colon], host[colon:]
		}
	}
	if port != "" && (port[0] != ':' || strings.Trim(port[1:], "0123456789") != "") {
		return "", false
	}
	name = canonical(name)
	return name, name != ""
}

// canonical returns the one spelling of a host name or address in which hosts are compared.
func canonical(host string) string {
	if addr, err := netip.ParseAddr(host); err == nil {
		return addr.Unmap().String()
	}
	return strings.ToLower(strings.TrimSuffix(host, "."))
}
