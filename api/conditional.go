package api

import (
	"bytes"
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/problem"
)

// A revision is the stored state of a resource that a GET returns now.
type revision struct {
	view      any
	changedAt time.Time
}

// preconditions reads the preconditions of a PUT into p. The transaction of the write checks
// them. current returns the resource in a fresh catalogue, nil when there is none. A tag in
// If-Match is translated to its revision: after a concurrent write the transaction finds
// another revision. A tag in If-None-Match needs no check in the transaction, because no
// later revision has it.
func (a *API) preconditions(ctx context.Context, rc *fasthttp.RequestCtx, p *durable.Put, current func() (*revision,
	error)) error {
	match, err := readTags(rc, fasthttp.HeaderIfMatch)
	if err != nil {
		return err
	}
	none, err := readTags(rc, fasthttp.HeaderIfNoneMatch)
	if err != nil {
		return err
	}
	if match == nil { // RFC 9110, 13.2.2: If-Match goes before the date
		if p.UnmodifiedSince, err = unmodifiedSince(rc); err != nil {
			return err
		}
	}
	if match == nil && none == nil {
		return nil
	}
	if err := a.fresh(ctx); err != nil {
		return err
	}
	r, err := current()
	if err != nil {
		return err
	}
	etag, exists := "", r != nil
	if exists {
		body, err := encode(r.view)
		if err != nil {
			return err
		}
		etag = tagOf(body)
	}
	if match != nil && (!exists || !match.strong(etag)) || none != nil && exists && none.weak(etag) {
		return durable.ErrPrecondition
	}
	if match != nil && !match.any {
		p.Revision = r.changedAt
	} else if match != nil || none.any {
		p.Exists = &exists
	}
	return nil
}

// unmodifiedSince returns the If-Unmodified-Since of the request, zero when it has none. It
// refuses a malformed date instead of ignoring it: an ignored date could overwrite a change
// that the client wants to keep.
func unmodifiedSince(ctx *fasthttp.RequestCtx) (time.Time, error) {
	values := ctx.Request.Header.PeekAll(fasthttp.HeaderIfUnmodifiedSince)
	if len(values) == 0 {
		return time.Time{}, nil
	}
	t, err := http.ParseTime(string(values[0]))
	if err != nil || len(values) > 1 || t.IsZero() {
		return time.Time{}, problem.New(fasthttp.StatusBadRequest, "invalid_date",
			"If-Unmodified-Since must be one HTTP date in the format of Last-Modified.")
	}
	return t, nil
}

// notModified reports whether the client's copy is the current representation. If-None-Match
// decides when it is present (RFC 9110, 13.2.2). byDate tells whether the date alone can
// decide; see the package comment.
func notModified(ctx *fasthttp.RequestCtx, etag string, lastModified time.Time, byDate bool) bool {
	h := &ctx.Request.Header
	if none, err := readTags(ctx, fasthttp.HeaderIfNoneMatch); none != nil || err != nil {
		// A malformed list matches no tag: the answer is only longer than necessary.
		return err == nil && none.weak(etag)
	}
	since := h.Peek(fasthttp.HeaderIfModifiedSince)
	if !byDate || len(since) == 0 {
		return false
	}
	t, err := http.ParseTime(string(since))
	// A malformed date is ignored (RFC 9110, 13.1.3): the answer is only longer than
	// necessary.
	return err == nil && !lastModified.Truncate(time.Second).After(t)
}

// A tagList is the value of If-Match or If-None-Match.
type tagList struct {
	any  bool     // *
	tags []string // as sent: with quotes, and with W/ when weak
}

// weak reports whether etag, a strong one, is in the list by weak comparison.
func (l *tagList) weak(etag string) bool {
	for _, tag := range l.tags {
		if strings.TrimPrefix(tag, "W/") == etag {
			return true
		}
	}
	return l.any
}

// strong reports the same by strong comparison: a weak tag equals no tag.
func (l *tagList) strong(etag string) bool { return l.any || slices.Contains(l.tags, etag) }

// readTags returns the list in all headers of that name, nil when there is none.
// A malformed list is an error: a PUT that ignored it could overwrite a change that the
// client wants to keep.
func readTags(rc *fasthttp.RequestCtx, header string) (*tagList, error) {
	values := rc.Request.Header.PeekAll(header)
	if len(values) == 0 {
		return nil, nil
	}
	text := string(bytes.Join(values, []byte{','}))
	l, ok := parseTags(text)
	if !ok {
		return nil, problem.New(fasthttp.StatusBadRequest, "invalid_etag",
			header+" must be * or a list of quoted entity tags in the format of ETag.")
	}
	return l, nil
}

// parseTags reads a list of entity tags (RFC 9110, 8.8.3). It skips empty members (5.6.1.2)
// and refuses a list that has no other.
func parseTags(text string) (*tagList, bool) {
	if strings.Trim(text, blank) == "*" {
		return &tagList{any: true}, true
	}
	l := &tagList{}
	for {
		text = strings.TrimLeft(text, blank+",")
		if text == "" {
			return l, len(l.tags) > 0
		}
		start := len("W/")
		if !strings.HasPrefix(text, "W/") {
			start = 0
		}
		if len(text) == start || text[start] != '"' {
			return nil, false
		}
		length := strings.IndexByte(text[start+1:], '"')
		if length < 0 || strings.ContainsAny(text[start+1:][:length], blank) {
			return nil, false
		}
		end := start + 1 + length + 1
		l.tags = append(l.tags, text[:end])
		text = strings.TrimLeft(text[end:], blank)
		if text != "" && text[0] != ',' {
			return nil, false
		}
	}
}

const blank = " \t"

// newest returns the later time.
func newest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
