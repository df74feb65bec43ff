package asset

import (
	"bytes"
	"compress/gzip"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"
)

// ask asks for a file with headers, "Name: value".
func ask(f *File, headers ...string) *fasthttp.Response {
	var rc fasthttp.RequestCtx
	rc.Init(&fasthttp.Request{}, nil, nil)
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		rc.Request.Header.Set(name, value)
	}
	f.Serve(&rc)
	return &rc.Response
}

func TestAFileIsSentInGzipToWhoTakesItAndOnce(t *testing.T) {
	body := bytes.Repeat([]byte("the same again; "), 100)
	f := New("text/plain", "default-src 'none'", body)
	plain := ask(f)
	require.Equal(t, body, plain.Body())
	require.Empty(t, plain.Header.Peek("Content-Encoding"))
	packed := ask(f, "Accept-Encoding: br, gzip")
	require.Equal(t, "gzip", string(packed.Header.Peek("Content-Encoding")))
	require.Len(t, packed.Body(), f.Size())
	r, err := gzip.NewReader(bytes.NewReader(packed.Body()))
	require.NoError(t, err)
	unpacked, err := io.ReadAll(r)
	require.NoError(t, err)
	require.Equal(t, body, unpacked)
	require.Less(t, f.Size(), len(body)/10)
	for _, r := range []*fasthttp.Response{plain, packed} {
		require.Equal(t, "text/plain", string(r.Header.ContentType()))
		require.Equal(t, "Accept-Encoding", string(r.Header.Peek("Vary")))
		require.Equal(t, "default-src 'none'", string(r.Header.Peek("Content-Security-Policy")))
	}
	require.NotEqual(t, plain.Header.Peek("ETag"), packed.Header.Peek("ETag"))
	again := ask(f, "If-None-Match: "+string(plain.Header.Peek("ETag")))
	require.Equal(t, 304, again.StatusCode())
	require.Empty(t, again.Body())
	again = ask(f, "Accept-Encoding: gzip", "If-None-Match: "+string(plain.Header.Peek("ETag")))
	require.Equal(t, 200, again.StatusCode(), "it has another form of it")
}
