package api

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/internal/model/apitype"
	"github.com/penstock-broker/penstock/internal/model/problem"
)

// An AccessLog says which requests have a line in the log. The zero value means none.
type AccessLog struct {
	errors bool
	of     uint32 // one request in so many, at random; 0: none
}

// ParseAccessLog reads off, errors (answers of 400 and above), all, or 1/N: one request in N.
func ParseAccessLog(text string) (AccessLog, error) {
	switch text {
	case "", "off":
		return AccessLog{}, nil
	case "errors":
		return AccessLog{errors: true}, nil
	case "all":
		return AccessLog{of: 1}, nil
	}
	if part, found := strings.CutPrefix(text, "1/"); found {
		if n, err := strconv.ParseUint(part, 10, 32); err == nil && n > 0 {
			return AccessLog{of: uint32(n)}, nil
		}
	}
	return AccessLog{}, fmt.Errorf("must be off, errors, all or 1/N as 1/100, not %q", text)
}

// On reports whether any request has a line.
func (l AccessLog) On() bool { return l != AccessLog{} }

func (l AccessLog) wants(status int) bool {
	if l.errors {
		return status >= fasthttp.StatusBadRequest
	}
	return l.of == 1 || l.of > 1 && rand.Uint32N(l.of) == 0
}

// maxLogged bounds each text of a line that a client chose.
const maxLogged = 128

// loggedParams are the parameters of paths in a line. The others, of links and receipts, are secrets.
var loggedParams = [...]string{"channel", "consumer", "message", "job", "scheduled", "bulk", "replay"}

// logAccess writes the line of a request. It has no token, no query and no body.
func (a *API) logAccess(rc *fasthttp.RequestCtx, route string, took time.Duration) {
	line := make([]slog.Attr, 0, 16)
	text := func(name string, value string) {
		if value != "" {
			line = append(line, slog.String(name, value[:min(len(value), maxLogged)]))
		}
	}
	status := rc.Response.StatusCode()
	text("route", route)
	line = append(line, slog.Int("status", status))
	if status >= fasthttp.StatusBadRequest && string(rc.Response.Header.ContentType()) == problem.ContentType {
		var p apitype.Problem
		if json.Unmarshal(rc.Response.Body(), &p) == nil {
			text("code", p.Code)
		}
	}
	line = append(line, slog.Float64("ms", float64(took.Microseconds())/1000))
	text("request_id", requestID(rc))
	text("address", a.client(rc).String())
	text("user_agent", string(rc.UserAgent()))
	text("producer", string(rc.Request.Header.Peek(headerProducerID)))
	channelID, _ := broadcastChannel(rc)
	for _, name := range loggedParams {
		value, _ := rc.UserValue(name).(string)
		if name == "channel" && value == "" {
			value = channelID
		}
		text(name, value)
	}
	if n := rc.Request.Header.ContentLength(); n > 0 {
		line = append(line, slog.Int("request_bytes", n))
	}
	if !rc.Response.IsBodyStream() {
		line = append(line, slog.Int("answer_bytes", len(rc.Response.Body())))
	}
	a.log.LogAttrs(rc, slog.LevelInfo, "request", line...)
}
