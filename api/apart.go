package api

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"strconv"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/internal/tool/answer"
)

// A payload is one that a view shows. encoding/json would hold several copies of it, so it is put
// into the text beside it.
type payload struct {
	member   *string // of the view
	bytes    []byte
	inBase64 bool
}

// places begins the text that stands for a payload in a view. No client knows it.
var places = rand.Text()

var errPlace = errors.New("api: a view has no place for its payload")

// encodeApart returns v as JSON, with payloads in the order of their members in it.
func encodeApart(v any, payloads ...payload) (t answer.Text, err error) {
	for i, p := range payloads {
		*p.member = places + strconv.Itoa(i)
	}
	rest, err := encode(v)
	if err != nil {
		return t, err
	}
	t.B = make([]byte, 0, len(rest))
	for _, p := range payloads {
		before, after, ok := bytes.Cut(rest, []byte(`"`+*p.member+`"`))
		if !ok {
			return t, errPlace
		}
		t.B = append(t.B, before...)
		t.String(p.bytes, p.inBase64)
		rest = after
	}
	t.B = append(t.B, rest...)
	return t, nil
}

// taggedApart is encodeApart with the entity tag of the text.
func taggedApart(v any, payloads ...payload) (t answer.Text, etag string, err error) {
	if t, err = encodeApart(v, payloads...); err != nil {
		return t, "", err
	}
	sum := sha256.New()
	t.Hash(sum.Write)
	return t, `"` + base64.RawURLEncoding.EncodeToString(sum.Sum(nil)[:15]) + `"`, nil
}

// answerApart is answerResource for a view with payloads.
func answerApart(rc *fasthttp.RequestCtx, held *answer.Body, v any, lastModified time.Time, byDate bool,
	payloads ...payload) error {
	t, etag, err := taggedApart(v, payloads...)
	if err != nil {
		return err
	}
	if err := answerTagged(rc, fasthttp.StatusOK, nil, etag, lastModified, byDate); err != nil {
		return err
	}
	if rc.Response.StatusCode() == fasthttp.StatusOK {
		held.Send(rc, t)
	}
	return nil
}
