package penstock

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"
)

const (
	mostAnswer = 64 << 20 // bytes of an answer that are read: a claim may bring 8 MiB of messages, or one larger
	mostError  = 64 << 10 // bytes of an error that are read
	mostWait   = time.Hour
)

// A call is one request.
type call struct {
	method, path string // the path escaped, with the query
	header       http.Header
	body         []byte
	wait         time.Duration // that the broker may take before it answers
}

// An answer is a response of 2xx.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// once sends the request and reads its answer. Every other answer than 2xx is an *Error.
func (c *Client) once(ctx context.Context, q call) (*answer, error) {
	ctx, cancel := context.WithTimeout(ctx, c.o.Timeout+q.wait)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, q.method, c.base+q.path, bytes.NewReader(q.body))
	if err != nil {
		return nil, q.failed(err)
	}
	for name, values := range q.header {
		if strings.ContainsAny(name+values[0], "\r\n\x00") || strings.ContainsAny(name, " :") || name == "" {
			return nil, fmt.Errorf("penstock: the header %q cannot be sent: its name or value has characters that no header has",
				name)
		}
		req.Header[name] = values
	}
	req.Header.Set("User-Agent", "penstock-go/"+Version)
	res, err := c.http.Do(req)
	if err != nil {
		return nil, q.failed(unwrapped(ctx, err))
	}
	defer func() { _ = res.Body.Close() }()
	most := int64(mostAnswer)
	if res.StatusCode/100 != 2 {
		most = mostError
	}
	body, err := io.ReadAll(io.LimitReader(res.Body, most+1))
	switch {
	case res.StatusCode/100 != 2:
		return nil, q.refused(res, body[:min(len(body), mostError)])
	case err != nil:
		return nil, q.failed(unwrapped(ctx, err))
	case int64(len(body)) > most:
		return nil, q.failed(fmt.Errorf("the answer has more than %d bytes", most))
	}
	return &answer{res.StatusCode, res.Header, body}, nil
}

// unwrapped is a failure in few words: without the URL, which stands in the Error, and with the time-out
// by name.
func unwrapped(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	var outer interface{ Unwrap() error }
	if errors.As(err, &outer) && outer.Unwrap() != nil {
		return outer.Unwrap()
	}
	return err
}

func (q *call) failed(err error) *Error {
	path, _, _ := strings.Cut(q.path, "?")
	return &Error{Method: q.method, Path: path, Err: err}
}

// refused reads an answer other than 2xx.
func (q *call) refused(res *http.Response, body []byte) *Error {
	e := q.failed(nil)
	e.Status, e.RetryAfter, e.RequestID = res.StatusCode, waitOf(res.Header), res.Header.Get("X-Request-Id")
	e.location = res.Header.Get("Location")
	var p struct {
		Code   string `json:"code"`
		Detail string `json:"detail"`
	}
	if media, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type")); media == "application/problem+json" &&
		json.Unmarshal(body, &p) == nil {
		e.Code, e.Detail = p.Code, p.Detail
	}
	return e
}

// decode reads the JSON of an answer. What is none is as good as no answer.
func (q *call) decode(a *answer, to any) error {
	media, _, _ := mime.ParseMediaType(a.header.Get("Content-Type"))
	if media != "application/json" {
		return q.failed(fmt.Errorf("the answer is %q, no JSON of a broker", cmp.Or(media, "of no type")))
	}
	if err := json.Unmarshal(a.body, to); err != nil {
		return q.failed(fmt.Errorf("the answer cannot be read: %w", err))
	}
	return nil
}

// waitOf reads Retry-After: seconds, or a date, which is compared with the Date of the same answer and not
// with the clock of this machine.
func waitOf(h http.Header) time.Duration {
	text := strings.TrimSpace(h.Get("Retry-After"))
	if seconds, err := strconv.ParseFloat(text, 64); err == nil {
		if !(seconds > 0) {
			return 0
		}
		return time.Duration(min(seconds, mostWait.Seconds()) * float64(time.Second))
	}
	until, err := http.ParseTime(text)
	now, noDate := http.ParseTime(h.Get("Date"))
	if err != nil || noDate != nil {
		return 0
	}
	return min(max(until.Sub(now), 0), mostWait)
}
