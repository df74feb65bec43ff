package api

import (
	"bytes"
	"net/http"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/problem"
)

// unmodifiedSince returns the If-Unmodified-Since of the request, zero when it
// has none. A date that cannot be read is refused rather than ignored: the
// caller asked not to overwrite, and without a date we cannot tell.
func unmodifiedSince(ctx *fasthttp.RequestCtx) (time.Time, error) {
	values := ctx.Request.Header.PeekAll(fasthttp.HeaderIfUnmodifiedSince)
	if len(values) == 0 {
		return time.Time{}, nil
	}
	t, err := http.ParseTime(string(values[0]))
	if err != nil || len(values) > 1 || t.IsZero() {
		return time.Time{}, problem.New(fasthttp.StatusBadRequest, "invalid_date",
			"If-Unmodified-Since must be one HTTP date, as Last-Modified is.")
	}
	return t, nil
}

// notModified reports whether the caller's copy is the current representation.
// As RFC 9110 section 13.2.2 says, If-None-Match decides when it is present.
// byDate tells whether the date alone can (see the package comment).
func notModified(ctx *fasthttp.RequestCtx, etag []byte, lastModified time.Time, byDate bool) bool {
	h := &ctx.Request.Header
	if lists := h.PeekAll(fasthttp.HeaderIfNoneMatch); len(lists) > 0 {
		for _, list := range lists {
			if etagMatches(list, etag) {
				return true
			}
		}
		return false
	}
	since := h.Peek(fasthttp.HeaderIfModifiedSince)
	if !byDate || len(since) == 0 {
		return false
	}
	t, err := http.ParseTime(string(since))
	// A date that cannot be read is ignored (RFC 9110, 13.1.3): the answer is
	// then only longer than needed.
	return err == nil && !lastModified.Truncate(time.Second).After(t)
}

// etagMatches compares weakly, as If-None-Match does.
func etagMatches(list, etag []byte) bool {
	for _, tag := range bytes.Split(list, []byte{','}) {
		tag = bytes.TrimSpace(tag)
		if string(tag) == "*" || bytes.Equal(bytes.TrimPrefix(tag, []byte("W/")), etag) {
			return true
		}
	}
	return false
}

// newest returns the later time.
func newest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
