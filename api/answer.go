package api

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/internal/model/apitype"
)

// changedAt is the time of a resource in its JSON. It has whole seconds, so that it equals
// Last-Modified, with which clients compare it.
func changedAt(t time.Time) time.Time { return t.UTC().Truncate(time.Second) }

// encode returns v as JSON. It does not escape markup characters: people read payloads far
// more often than pages embed them.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, fmt.Errorf("api: encode answer: %w", err)
	}
	return b.Bytes(), nil
}

// answerJSON writes v, which has no date, as JSON.
func answerJSON(rc *fasthttp.RequestCtx, status int, v any) error {
	body, err := encode(v)
	if err != nil {
		return err
	}
	rc.SetStatusCode(status)
	rc.SetContentType(apitype.MediaJSON)
	rc.Response.Header.Set(fasthttp.HeaderCacheControl, "no-store")
	rc.Response.SetBodyRaw(body)
	return nil
}

// answerResource writes the representation of a resource with its validators, or 304 when
// the client has it already. byDate tells whether lastModified alone proves that; see the
// package comment.
func answerResource(rc *fasthttp.RequestCtx, status int, v any, lastModified time.Time, byDate bool) error {
	body, err := encode(v)
	if err != nil {
		return err
	}
	return answerEncoded(rc, status, body, lastModified, byDate)
}

// answerEncoded is answerResource for a representation that is JSON already.
func answerEncoded(rc *fasthttp.RequestCtx, status int, body []byte, lastModified time.Time, byDate bool) error {
	return answerTagged(rc, status, body, tagOf(body), lastModified, byDate)
}

// answerTagged is answerEncoded for a representation with members that its tag leaves out.
func answerTagged(rc *fasthttp.RequestCtx, status int, body []byte, etag string, lastModified time.Time,
	byDate bool) error {
	h := &rc.Response.Header
	h.Set(fasthttp.HeaderLastModified, lastModified.UTC().Format(http.TimeFormat))
	h.Set(fasthttp.HeaderETag, etag)
	// Representations contain tokens: a shared cache must not store them, and a private
	// cache must revalidate them each time.
	h.Set(fasthttp.HeaderCacheControl, "private, no-cache")
	if (rc.IsGet() || rc.IsHead()) && notModified(rc, etag, lastModified, byDate) {
		rc.Response.ResetBody()
		rc.SetStatusCode(fasthttp.StatusNotModified)
		return nil
	}
	rc.SetStatusCode(status)
	rc.SetContentType(apitype.MediaJSON)
	rc.Response.SetBodyRaw(body)
	return nil
}

// tagOf returns the strong entity tag of a representation.
func tagOf(body []byte) string {
	sum := sha256.Sum256(body)
	return `"` + base64.RawURLEncoding.EncodeToString(sum[:15]) + `"`
}

// accepted answers 202 with no body.
func accepted(rc *fasthttp.RequestCtx) error {
	rc.SetStatusCode(fasthttp.StatusAccepted)
	return nil
}

// putStatus is 201 for a creation, 200 for an update.
func putStatus(created bool) int {
	if created {
		return fasthttp.StatusCreated
	}
	return fasthttp.StatusOK
}
