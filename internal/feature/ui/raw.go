package ui

import (
	"context"

	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/internal/model/problem"
)

// The raw view is a payload as it was sent, byte for byte. It comes from anybody, so its page is of no origin, runs and
// loads nothing, and a browser takes it for a text, or keeps it as a file where it is none: never for what its content
// type says. Where BROKER_UI_PAYLOADS hides something of payloads, the raw view asks first, as the page of the message
// does, and the audit log has who looked.
const (
	rawRoute  = "/ui/channel/{channel}/message/{message}/raw"
	rawAction = "reveal-raw"
	rawPolicy = "sandbox; default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
)

var errHiddenPayload = problem.New(fasthttp.StatusForbidden, "out_of_scope",
	"Payloads are hidden here by BROKER_UI_PAYLOADS, and this login, or this dashboard, may not reveal one.")

// rawURL is the raw view of a message; "": there is nothing to show, or it must not be shown.
func (v *view) rawURL(m *Message) string {
	switch {
	case v.portal != nil || v.revealed || len(m.Payload) == 0:
		return ""
	case !v.d.o.Payloads.whole() && v.revealURL(m) == "":
		return ""
	}
	return messageURL(m.Channel, m.ID) + "/raw"
}

// raw answers with the payload of a message, or leads to the question where something of it is hidden. It costs the
// three statements of the page of a message.
func (d *Dashboard) raw(ctx context.Context, rc *fasthttp.RequestCtx, visit Visit) {
	v := d.view(rc, visit)
	m, err := v.src.Message(ctx, v.id("channel"), v.id("message"), "", false)
	if err != nil {
		d.refuse(v, visit, err)
		return
	}
	if d.o.Payloads.whole() {
		sendRaw(rc, visit, &m)
		return
	}
	t := &target{Channel: m.Channel, Message: m.ID, Action: rawAction}
	if d.o.ReadOnly || v.portal != nil || !v.may(rawAction, t) {
		d.refuse(v, visit, errHiddenPayload)
		return
	}
	redirect(rc, t.URL())
}

// sendRaw writes a payload. Nothing of its message decides how a browser takes it, but whether its bytes are a text.
func sendRaw(rc *fasthttp.RequestCtx, visit Visit, m *Message) {
	h := &rc.Response.Header
	h.Set(fasthttp.HeaderContentSecurityPolicy, rawPolicy)
	h.Del("Cross-Origin-Opener-Policy") // with it a browser shows no page of no origin
	h.Set(fasthttp.HeaderCacheControl, "no-store")
	if (m.Coding == "" || m.Coding == "identity") && readable(m.Payload) {
		rc.SetContentType("text/plain; charset=utf-8")
	} else {
		rc.SetContentType("application/octet-stream")
		h.Set(fasthttp.HeaderContentDisposition, `attachment; filename="payload-`+m.Own+`.bin"`)
	}
	if visit.Send != nil {
		visit.Send(m.Payload)
		return
	}
	rc.Response.SetBodyRaw(m.Payload)
}
