// Package credentials reads the tokens of requests. Each token has a header of its own; Authorization with
// the scheme Bearer (RFC 6750) stands for each one whose header a request lacks.
package credentials

import (
	"bytes"

	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/internal/model/problem"
)

// The headers that carry tokens.
const (
	Admin    = "X-Broker-Admin-Token"
	Channel  = "X-Broker-Channel-Token"
	Consumer = "X-Broker-Consumer-Token"
	Producer = "X-Broker-Producer-Token"
)

var errBearer = problem.New(fasthttp.StatusUnauthorized, "token_missing",
	"Authorization must be given once, and with the scheme Bearer have one token after it: visible ASCII without blanks.")

// Of returns the token in the header of that name, else the bearer token; nil: the request has
// neither. It allocates nothing, and the token is part of the request's memory.
func Of(h *fasthttp.RequestHeader, name string) ([]byte, error) {
	if token := h.Peek(name); len(token) > 0 {
		return token, nil
	}
	return Bearer(h)
}

// Both returns the tokens of the channel and of an owner in it: a producer or a consumer, whose header
// is name. It looks at Authorization where one of the two is missing, and at nothing else.
func Both(h *fasthttp.RequestHeader, name string) (channel, owner []byte, err error) {
	channel, owner = h.Peek(Channel), h.Peek(name)
	if len(channel) > 0 && len(owner) > 0 {
		return channel, owner, nil
	}
	bearer, err := Bearer(h)
	if len(channel) == 0 {
		channel = bearer
	}
	if len(owner) == 0 {
		owner = bearer
	}
	return channel, owner, err
}

const scheme = "bearer"

// Bearer returns the token in Authorization, nil where there is none or another scheme: that one may be
// for a proxy. It refuses a header from which no token can be read, and one that occurs twice, because
// a proxy may have read the other.
func Bearer(h *fasthttp.RequestHeader) ([]byte, error) {
	value := h.Peek(fasthttp.HeaderAuthorization)
	if len(value) == 0 {
		return nil, nil
	}
	if all := h.PeekAll(fasthttp.HeaderAuthorization); len(all) > 1 {
		for _, one := range all {
			if _, ok := afterScheme(one); ok {
				return nil, errBearer
			}
		}
		return nil, nil
	}
	token, ok := afterScheme(value)
	if !ok {
		return nil, nil
	}
	if len(token) == 0 {
		return nil, errBearer
	}
	for _, b := range token {
		if b <= ' ' || b > '~' {
			return nil, errBearer
		}
	}
	return token, nil
}

// afterScheme returns what follows the scheme Bearer, without blanks around it. ok: it is that scheme.
func afterScheme(value []byte) (rest []byte, ok bool) {
	value = bytes.Trim(value, " \t")
	if len(value) < len(scheme) || !bytes.EqualFold(value[:len(scheme)], []byte(scheme)) {
		return nil, false
	}
	rest = value[len(scheme):]
	if len(rest) > 0 && rest[0] != ' ' && rest[0] != '\t' {
		return nil, false
	}
	return bytes.Trim(rest, " \t"), true
}
