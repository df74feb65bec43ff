package ui

import (
	"bytes"

	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/internal/model/apitype"
)

// A live page asks for itself as a stream of events. The stream ends after one event, which is the page, and the
// browser asks again after some seconds (the configuration in frame.html). So a stream is an ordinary answer: it
// holds no connection and no goroutine between two looks, and a browser that is gone leaves nothing behind.

// streams reports whether the request asks for a stream of events.
func streams(rc *fasthttp.RequestCtx) bool {
	return !rc.IsPost() && bytes.Contains(rc.Request.Header.Peek(fasthttp.HeaderAccept), []byte(apitype.MediaEvents))
}

// tell answers with what is inside a page, as one event.
func (d *Dashboard) tell(rc *fasthttp.RequestCtx, name string, f frame) {
	body, _ := d.made(name, "live", f)
	sendEvent(rc, "", body)
}

// tellLogin says that the session has ended: the page is loaded anew, which leads to the login.
func tellLogin(rc *fasthttp.RequestCtx) { sendEvent(rc, "penstock:login", nil) }

// sendEvent answers with an event. A browser reads carriage returns in HTML as line feeds.
func sendEvent(rc *fasthttp.RequestCtx, name string, data []byte) {
	out := make([]byte, 0, len(data)+len(data)/8+64)
	if name != "" {
		out = append(append(append(out, "event: "...), name...), '\n')
	}
	data = bytes.ReplaceAll(bytes.ReplaceAll(data, []byte("\r\n"), []byte("\n")), []byte("\r"), []byte("\n"))
	for _, line := range bytes.Split(data, []byte("\n")) {
		out = append(append(append(out, "data: "...), line...), '\n')
	}
	rc.Response.Header.Set(fasthttp.HeaderCacheControl, "no-store")
	rc.SetContentType(apitype.MediaEvents)
	rc.Response.SetBodyRaw(append(out, '\n'))
}
