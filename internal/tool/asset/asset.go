package asset

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/base64"

	"github.com/valyala/fasthttp"
)

// A File is what a route answers to everybody.
type File struct {
	media, policy string
	body, packed  []byte // packed is body in gzip
	tag           string
}

// New returns a file of a media type with a Content-Security-Policy.
func New(media, policy string, body []byte) *File { return Packed(media, policy, body, Pack(body)) }

// Packed is New for a file that there is in gzip already.
func Packed(media, policy string, body, packed []byte) *File {
	sum := sha256.Sum256(body)
	return &File{media, policy, body, packed, base64.RawURLEncoding.EncodeToString(sum[:15])}
}

// Size returns the length of the file in gzip, bytes.
func (f *File) Size() int { return len(f.packed) }

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

// Serve answers with the file.
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
