package main

import (
	"net"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
)

// Kubernetes announces the services of its namespace to each container in variables
// that begin with the name of the service. If a service is named broker, or
// broker-mysql, these variables look like settings of the broker:
//
//	BROKER_SERVICE_HOST=10.0.0.11         BROKER_PORT=tcp://10.0.0.11:8080
//	BROKER_SERVICE_PORT=8080              BROKER_PORT_8080_TCP=tcp://10.0.0.11:8080
//	BROKER_SERVICE_PORT_HTTP=8080         BROKER_PORT_8080_TCP_PROTO=tcp
//	                                      BROKER_PORT_8080_TCP_PORT=8080
//	                                      BROKER_PORT_8080_TCP_ADDR=10.0.0.11
var (
	linkHost   = regexp.MustCompile(`^BROKER(?:_[A-Z0-9_]+)?_SERVICE_HOST$`)
	linkNumber = regexp.MustCompile(`^BROKER(?:_[A-Z0-9_]+)?_SERVICE_PORT(?:_[A-Z0-9_]+)?$`)
	linkURL    = regexp.MustCompile(`^BROKER(?:_[A-Z0-9_]+)?_PORT(?:_([0-9]+)_(TCP|UDP|SCTP))?$`)
	linkPart   = regexp.MustCompile(`^BROKER(?:_[A-Z0-9_]+)?_PORT_([0-9]+)_(TCP|UDP|SCTP)_(PROTO|PORT|ADDR)$`)
)

// isServiceLink reports whether a variable is one of these, by its name and its value;
// BROKER_PORT=8080 is a mistake of the operator. A name can have two of the forms:
// BROKER_SERVICE_PORT also belongs to a service that is named broker-service.
func isServiceLink(name, value string) bool {
	switch {
	case linkHost.MatchString(name) && isIP(value), linkNumber.MatchString(name) && isPort(value):
		return true
	}
	if m := linkURL.FindStringSubmatch(name); m != nil && isEndpoint(value, m[1], m[2]) {
		return true
	}
	m := linkPart.FindStringSubmatch(name)
	if m == nil {
		return false
	}
	switch m[3] {
	case "PROTO":
		return value == strings.ToLower(m[2])
	case "PORT":
		return value == m[1] && isPort(value)
	}
	return isIP(value)
}

func isIP(s string) bool { _, err := netip.ParseAddr(s); return err == nil }

func isPort(s string) bool { _, err := strconv.ParseUint(s, 10, 16); return err == nil }

// isEndpoint reports whether s has the form tcp://10.0.0.11:8080, with the given port and protocol
// unless they are empty.
func isEndpoint(s, port, protocol string) bool {
	scheme, address, ok := strings.Cut(s, "://")
	if !ok || protocol != "" && scheme != strings.ToLower(protocol) || scheme != "tcp" && scheme != "udp" &&
		scheme != "sctp" {
		return false
	}
	host, p, err := net.SplitHostPort(address)
	return err == nil && isIP(host) && isPort(p) && (port == "" || p == port)
}
