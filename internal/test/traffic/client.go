package traffic

import (
	"bytes"
	"fmt"
	"io"
	"net/http"

	"github.com/valyala/fasthttp"
)

// Fasthttp returns the transport of a client of fasthttp that records its exchanges, without those that skip names by
// method and path with query. Without a folder for records it is the usual transport, nil.
func Fasthttp(skip func(method, path string) bool) fasthttp.RoundTripper {
	r := ofProcess()
	if r == nil {
		return nil
	}
	return &fastTransport{r, skip}
}

type fastTransport struct {
	to   *Recorder
	skip func(method, path string) bool
}

// RoundTrip implements fasthttp.RoundTripper.
func (t *fastTransport) RoundTrip(hc *fasthttp.HostClient, req *fasthttp.Request,
	res *fasthttp.Response) (bool, error) {
	sent := bytes.Clone(req.Body()) // a stream is read here, which a test of this module may do
	again, err := fasthttp.DefaultTransport.RoundTrip(hc, req, res)
	method, path := string(req.Header.Method()), string(req.URI().RequestURI())
	if err != nil || t.skip(method, path) {
		return again, err
	}
	e := Exchange{Method: method, Path: path, Headers: http.Header{}, Body: sent, Status: res.StatusCode(),
		Answer: http.Header{}}
	for name, value := range req.Header.All() {
		e.Headers.Add(string(name), string(value))
	}
	for name, value := range res.Header.All() {
		e.Answer.Add(string(name), string(value))
	}
	if e.TextCut = res.IsBodyStream(); !e.TextCut {
		e.Text = bytes.Clone(res.Body())
	}
	if err := t.to.Record(e); err != nil {
		return false, fmt.Errorf("record the exchange: %w", err)
	}
	return again, nil
}

// HTTP returns a transport that records the exchanges of base, or base itself without a folder for records. An
// exchange is recorded when its answer was read or closed.
func HTTP(base http.RoundTripper) http.RoundTripper {
	r := ofProcess()
	if r == nil {
		return base
	}
	return &netTransport{r, base}
}

type netTransport struct {
	to   *Recorder
	base http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (t *netTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	e := Exchange{Method: req.Method, Path: req.URL.RequestURI(), Headers: req.Header.Clone(), Cut: req.Body != nil}
	if req.GetBody != nil {
		if again, err := req.GetBody(); err == nil {
			e.Body, err = io.ReadAll(io.LimitReader(again, mostBody+1))
			e.Cut = err != nil
		}
	}
	res, err := t.base.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	e.Status, e.Answer = res.StatusCode, res.Header.Clone()
	res.Body = &read{ReadCloser: res.Body, e: e, to: t.to}
	return res, nil
}

// CloseIdleConnections is what http.Client calls.
func (t *netTransport) CloseIdleConnections() {
	if c, ok := t.base.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// A read is the body of an answer, which is recorded at its end.
type read struct {
	io.ReadCloser
	e    Exchange
	to   *Recorder
	done bool
}

// Read implements io.Reader.
func (r *read) Read(p []byte) (int, error) {
	n, err := r.ReadCloser.Read(p)
	if room := mostBody + 1 - len(r.e.Text); room > 0 {
		r.e.Text = append(r.e.Text, p[:min(n, room)]...)
	}
	if err == io.EOF {
		err = r.record(io.EOF)
	}
	return n, err
}

// Close implements io.Closer. An answer that nobody read to its end is recorded as a cut one.
func (r *read) Close() error {
	r.e.TextCut = true
	return r.record(r.ReadCloser.Close())
}

func (r *read) record(err error) error {
	if r.done {
		return err
	}
	r.done = true
	if failed := r.to.Record(r.e); failed != nil {
		return fmt.Errorf("record the exchange: %w", failed)
	}
	return err
}
