package egress

import (
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"
)

func sink(b *testing.B) string {
	b.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(b, err)
	s := &fasthttp.Server{Handler: func(ctx *fasthttp.RequestCtx) { ctx.SetBodyString("ok") }, IdleTimeout: time.Second}
	go s.Serve(l)
	b.Cleanup(func() { s.Shutdown() })
	return "http://" + l.Addr().String() + "/cb"
}

func BenchmarkPost(b *testing.B) {
	target, err := client(b).Target(ToConsumers, sink(b), "")
	require.NoError(b, err)
	body := []byte(strings.Repeat("x", 1024))
	b.ReportAllocs()
	b.SetParallelism(32)
	b.RunParallel(func(pb *testing.PB) {
		req := fasthttp.AcquireRequest()
		defer fasthttp.ReleaseRequest(req)
		for pb.Next() {
			req.Reset()
			req.SetBodyRaw(body)
			if r := target.Post(req, 10*time.Second); !r.OK() {
				b.Error(r.Err)
			}
		}
	})
}

// BenchmarkHostClient is what Post is compared with.
func BenchmarkHostClient(b *testing.B) {
	url := sink(b)
	hc := &fasthttp.HostClient{Addr: strings.TrimSuffix(strings.TrimPrefix(url, "http://"), "/cb"), MaxConns: 512,
		MaxIdleConnDuration: time.Second}
	body := []byte(strings.Repeat("x", 1024))
	b.ReportAllocs()
	b.SetParallelism(32)
	b.RunParallel(func(pb *testing.PB) {
		req, resp := fasthttp.AcquireRequest(), fasthttp.AcquireResponse()
		for pb.Next() {
			req.Reset()
			req.Header.SetMethod(fasthttp.MethodPost)
			req.SetRequestURI(url)
			req.SetBodyRaw(body)
			if err := hc.DoTimeout(req, resp, 10*time.Second); err != nil {
				b.Error(err)
			}
		}
	})
	b.StopTimer()
	hc.CloseIdleConnections()
	time.Sleep(1100 * time.Millisecond) // its cleaner leaves
}
