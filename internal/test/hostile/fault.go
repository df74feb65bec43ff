package hostile

import (
	"bytes"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"time"
)

// A Fault is what happens to some requests.
type Fault struct {
	Door  string // manage, publish, batch, request, responses, claim, jobs; "": every one
	Only  string // only requests whose body contains it
	Skip  int    // so many requests are left alone first
	Times int    // so many meet the fault; 0: all
	Do    func(*Exchange)

	met int
}

// An Exchange is one request under way.
type Exchange struct {
	b    *Broker
	w    http.ResponseWriter
	r    *http.Request
	body []byte
}

// fault returns the fault that a request meets, nil for none. b.mu is held.
func (b *Broker) fault(door string, body []byte) *Fault {
	for _, f := range b.faults {
		if f.Door != "" && f.Door != door || !bytes.Contains(body, []byte(f.Only)) {
			continue
		}
		f.met++
		if f.met > f.Skip && (f.Times == 0 || f.met <= f.Skip+f.Times) {
			return f
		}
	}
	return nil
}

// take does what the request asks for, and returns the answer without sending it.
func (x *Exchange) take() *httptest.ResponseRecorder {
	rec := httptest.NewRecorder()
	x.b.serve(rec, x.r, x.body)
	return rec
}

// send sends an answer that was kept.
func (x *Exchange) send(rec *httptest.ResponseRecorder) {
	maps.Copy(x.w.Header(), rec.Header())
	x.w.WriteHeader(rec.Code)
	_, _ = x.w.Write(rec.Body.Bytes())
}

// reset breaks the connection.
func (x *Exchange) reset() {
	c, _, err := x.w.(http.Hijacker).Hijack()
	if err != nil {
		return
	}
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = c.Close()
}

// gone waits until the client has left, or the broker ends.
func (x *Exchange) gone() {
	select {
	case <-x.r.Context().Done():
	case <-x.b.down:
	}
}

// rest waits, and reports whether the client is still there.
func (x *Exchange) rest(d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-x.r.Context().Done():
	case <-x.b.down:
	}
	return false
}

// Refuse answers with an error of the broker. Nothing is taken. after is Retry-After in seconds, 0 for none.
func Refuse(status int, code string, after int) func(*Exchange) {
	return func(x *Exchange) {
		if after > 0 {
			x.w.Header().Set("Retry-After", strconv.Itoa(after))
		}
		refuse(x.w, status, code)
	}
}

// Later does it after a time.
func Later(d time.Duration, do func(*Exchange)) func(*Exchange) {
	return func(x *Exchange) {
		if x.rest(d) {
			do(x)
		}
	}
}

// Veil answers as management does that shows no tokens.
func Veil(x *Exchange) {
	x.w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(x.w, `{"ID":"any","Token":"","Type":"pull"}`)
}

// Hold answers a claim with no jobs and Retry-After in seconds, as for a consumer that is paused.
func Hold(after int) func(*Exchange) {
	return func(x *Exchange) {
		x.w.Header().Set("Retry-After", strconv.Itoa(after))
		x.w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(x.w, `{"Result":[],"Why":"paused"}`)
	}
}

// BreakBefore breaks the connection. Nothing is taken.
func BreakBefore(x *Exchange) { x.reset() }

// BreakAfter takes the request and breaks the connection: the answer is lost.
func BreakAfter(x *Exchange) {
	x.take()
	x.reset()
}

// CutAfter takes the request and breaks the connection in the middle of the answer.
func CutAfter(x *Exchange) {
	rec := x.take()
	x.w.Header().Set("Content-Length", strconv.Itoa(rec.Body.Len()))
	maps.Copy(x.w.Header(), rec.Header())
	x.w.WriteHeader(rec.Code)
	_, _ = x.w.Write(rec.Body.Bytes()[:rec.Body.Len()/2])
	_ = http.NewResponseController(x.w).Flush()
	x.reset()
}

// For does something to the requests of a time, which begins with the first of them.
func For(d time.Duration, do func(*Exchange)) func(*Exchange) {
	var once sync.Once
	var begun time.Time
	return func(x *Exchange) {
		once.Do(func() { begun = time.Now() })
		if time.Since(begun) < d {
			do(x)
			return
		}
		x.send(x.take())
	}
}

// HangBefore never answers. Nothing is taken.
func HangBefore(x *Exchange) { x.gone() }

// HangAfter takes the request and never answers.
func HangAfter(x *Exchange) {
	x.take()
	x.gone()
}

// Slow takes the request and answers later.
func Slow(d time.Duration) func(*Exchange) {
	return func(x *Exchange) {
		if rec := x.take(); x.rest(d) {
			x.send(rec)
		}
	}
}

// Drip takes the request and sends its answer so slowly that it never ends.
func Drip(x *Exchange) {
	rec := x.take()
	maps.Copy(x.w.Header(), rec.Header())
	x.w.Header().Del("Content-Length")
	x.w.WriteHeader(rec.Code)
	for text := rec.Body.Bytes(); ; {
		next := []byte(" ")
		if len(text) > 1 { // the last byte never comes
			next, text = text[:1], text[1:]
		}
		_, err := x.w.Write(next)
		if err != nil || http.NewResponseController(x.w).Flush() != nil || !x.rest(50*time.Millisecond) {
			return
		}
	}
}

// Page takes the request and answers 200 with the page of a proxy.
func Page(x *Exchange) {
	x.take()
	x.w.Header().Set("Content-Type", "text/html")
	_, _ = io.WriteString(x.w, "<html><body>Be right back.</body></html>")
}

// Garble takes the request and answers with half of the JSON, well framed.
func Garble(x *Exchange) {
	rec := x.take()
	x.w.Header().Set("Content-Type", "application/json")
	_, _ = x.w.Write(rec.Body.Bytes()[:rec.Body.Len()/2])
}

// Other takes the request and answers with JSON of another route.
func Other(x *Exchange) {
	x.take()
	x.w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(x.w, `{"AppStatus":3}`)
}

// Endless takes the request and answers with JSON that does not end.
func Endless(x *Exchange) {
	x.take()
	x.w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(x.w, `{"Result":[{"ID":"`)
	for block := []byte(strings.Repeat("x", 1<<20)); ; {
		if _, err := x.w.Write(block); err != nil || x.r.Context().Err() != nil {
			return
		}
	}
}

// Leave takes the request, answers, and closes the connection without having said so.
func Leave(x *Exchange) {
	rec := x.take()
	c, buf, err := x.w.(http.Hijacker).Hijack()
	if err != nil {
		return
	}
	res := rec.Result()
	res.ContentLength = int64(rec.Body.Len())
	res.Header.Set("Content-Length", strconv.Itoa(rec.Body.Len()))
	_ = res.Write(buf)
	_ = buf.Flush()
	_ = c.Close()
}

// Lose gives a job to somebody else, who ends it, and then takes the request: the lease in it is lost.
func Lose(messageID string) func(*Exchange) {
	return func(x *Exchange) {
		x.b.end(messageID)
		x.send(x.take())
	}
}

// Retoken changes the token of a resource, and then takes the request.
func Retoken(path string) func(*Exchange) {
	return func(x *Exchange) {
		x.b.mu.Lock()
		x.b.tokens[path] += "-changed"
		x.b.mu.Unlock()
		x.send(x.take())
	}
}
