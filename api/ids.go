package api

import (
	"net/url"

	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/model/problem"
)

func invalidID(what string) *problem.Problem {
	return problem.New(fasthttp.StatusBadRequest, "invalid_id",
		what+" must be 1 to 255 of A-Z a-z 0-9 . _ ~ : @ -, and neither \".\" nor \"..\".")
}

// errReservedName refuses to make or change what belongs to the broker.
var errReservedName = problem.New(fasthttp.StatusBadRequest, "reserved_name",
	"Names that begin with ~ belong to the broker.")

// free refuses a reserved name in a path parameter.
func free(rc *fasthttp.RequestCtx, name string) error {
	if ident.Reserved(param(rc, name)) {
		return errReservedName
	}
	return nil
}

// decodePathID decodes a raw path segment, once, and checks the decoded text, which is the
// ID.
func decodePathID(name, raw string) (string, error) {
	if ident.ValidName(raw) { // the usual case: nothing is encoded
		return raw, nil
	}
	id, err := url.PathUnescape(raw)
	if err != nil || !ident.ValidName(id) {
		return "", invalidID("The " + name + " ID")
	}
	return id, nil
}

// decodePathIDs replaces the raw path parameters, which the router has put into the user
// values, by the decoded and checked IDs.
func decodePathIDs(ctx *fasthttp.RequestCtx, names []string) error {
	for _, name := range names {
		raw, _ := ctx.UserValue(name).(string)
		id, err := decodePathID(name, raw)
		if err != nil {
			return err
		}
		if id != raw {
			ctx.SetUserValue(name, id)
		}
	}
	return nil
}

// param returns a path parameter that decodePathIDs has checked.
func param(ctx *fasthttp.RequestCtx, name string) string {
	id, _ := ctx.UserValue(name).(string)
	return id
}
