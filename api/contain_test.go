package api

import (
	"bufio"
	"io"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"
	"github.com/valyala/fasthttp/fasthttputil"
)

// No route is around this handler, so none recovers.
func TestAPanicAroundTheRoutesFailsOneRequest(t *testing.T) {
	ln := fasthttputil.NewInmemoryListener()
	s := NewServer(func(rc *fasthttp.RequestCtx) {
		if string(rc.Path()) == "/panic" {
			rc.SetBodyString("half an answer")
			panic("boom")
		}
	}, ServerOptions{})
	done := make(chan error, 1)
	go func() { done <- s.Serve(ln) }()
	for path, status := range map[string]int{"/panic": 500, "/": 200} {
		c, err := ln.Dial()
		require.NoError(t, err)
		_, err = io.WriteString(c, "GET "+path+" HTTP/1.1\r\nHost: b\r\n\r\n")
		require.NoError(t, err)
		var res fasthttp.Response
		require.NoError(t, res.Read(bufio.NewReader(c)))
		require.Equal(t, status, res.StatusCode())
		if status == 500 {
			require.Contains(t, string(res.Body()), `"code":"internal"`)
			require.NotContains(t, string(res.Body()), "boom")
			require.NotContains(t, string(res.Body()), "half")
			require.True(t, res.ConnectionClose())
		}
		require.NoError(t, c.Close())
	}
	require.NoError(t, ln.Close())
	require.NoError(t, <-done)
}
