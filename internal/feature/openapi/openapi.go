package openapi

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	_ "embed" // the document
	"encoding/base64"
	"io"
	"sync"

	"github.com/valyala/fasthttp"
)

// packed is openapi.json in gzip, a tenth of its size.
//
//go:embed openapi.json.gz
var packed []byte

// text is openapi.json.
var text = sync.OnceValue(func() []byte {
	r, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		panic(err) // it is embedded
	}
	all, err := io.ReadAll(r)
	if err != nil {
		panic(err)
	}
	return all
})

// A File is what a route answers to everybody: a text that is the same as long as the broker runs.
type File struct {
	media, policy string
	body, packed  []byte // packed is body in gzip
	tag           string
}

// The files of the three routes. They are made when the first client asks for them.
var (
	JSON   = sync.OnceValue(func() *File { return newFile("application/json", "default-src 'none'", text(), packed) })
	Routes = sync.OnceValue(func() *File { return newPage(renderRoutes()) })
	Errors = sync.OnceValue(func() *File { return newPage(renderErrors()) })
)

const html = "text/html; charset=utf-8"

func newPage(body []byte) *File {
	return newFile(html, pagePolicy, body, Pack(body))
}

// Pack returns a text in gzip.
func Pack(text []byte) []byte {
	var b bytes.Buffer
	w, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err == nil {
		_, err = w.Write(text)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		panic(err) // the level exists, and a buffer takes everything
	}
	return b.Bytes()
}

func newFile(media, policy string, body, packed []byte) *File {
	sum := sha256.Sum256(body)
	return &File{media, policy, body, packed, base64.RawURLEncoding.EncodeToString(sum[:15])}
}

// Serve answers with the file, in gzip to clients that take it, or with 304 to those that have it.
func (f *File) Serve(rc *fasthttp.RequestCtx) {
	h := &rc.Response.Header
	body, tag := f.body, `"`+f.tag+`"`
	if rc.Request.Header.HasAcceptEncoding("gzip") {
		body, tag = f.packed, `"`+f.tag+`-gzip"`
		h.Set(fasthttp.HeaderContentEncoding, "gzip")
	}
	h.Set(fasthttp.HeaderETag, tag)
	h.Set(fasthttp.HeaderVary, fasthttp.HeaderAcceptEncoding)
	h.Set(fasthttp.HeaderCacheControl, "public, no-cache")
	h.Set(fasthttp.HeaderContentSecurityPolicy, f.policy)
	h.Set(fasthttp.HeaderXContentTypeOptions, "nosniff")
	h.Set(fasthttp.HeaderReferrerPolicy, "no-referrer")
	if bytes.Contains(rc.Request.Header.Peek(fasthttp.HeaderIfNoneMatch), []byte(tag)) {
		h.Del(fasthttp.HeaderContentEncoding)
		rc.SetStatusCode(fasthttp.StatusNotModified)
		return
	}
	rc.SetContentType(f.media)
	rc.Response.SetBodyRaw(body)
}
