package ui

import (
	"context"
	"strconv"

	"github.com/valyala/fasthttp"
)

// Where BROKER_UI_PAYLOADS hides payloads, somebody with a session may see one of them, once: a page asks, and the
// form of it shows the payload and the responses of the consumers, after the audit log has who looked, and at what.
// Without that entry nothing is shown. Whoever came by a portal link cannot, nor can anybody where the dashboard only
// reads.

const (
	revealRoute  = "/ui/channel/{channel}/message/{message}/action/{action}"
	revealAction = "reveal"
)

// payloads says what the page shows of payloads.
func (v *view) payloads() *Payloads {
	if v.revealed {
		return &Payloads{}
	}
	return &v.d.o.Payloads
}

// revealURL is the page that asks before a payload is shown; "": it is shown, or must not be.
func (v *view) revealURL(m *Message) string {
	t := &target{Channel: m.Channel, Message: m.ID, Action: revealAction}
	if v.d.o.ReadOnly || v.portal != nil || !v.may(revealAction, t) || v.payloads().whole() ||
		len(m.Payload) == 0 && !m.Responding {
		return ""
	}
	return t.URL()
}

// reveal asks before it shows a payload, or shows it.
func (d *Dashboard) reveal(ctx context.Context, rc *fasthttp.RequestCtx, visit Visit) {
	v := d.view(rc, visit)
	var refusal error
	switch {
	case d.o.ReadOnly:
		refusal = errReadOnly
	case v.id("action") != revealAction && v.id("action") != rawAction || v.portal != nil || d.o.Payloads.whole():
		refusal = errNoAction
	case rc.IsPost() && !ownForm(rc):
		refusal = errForeignForm
	}
	if refusal != nil {
		d.refuse(v, visit, refusal)
		return
	}
	raw := v.id("action") == rawAction
	m, err := v.src.Message(ctx, v.id("channel"), v.id("message"), "", rc.IsPost() && !raw)
	if err != nil {
		d.refuse(v, visit, err)
		return
	}
	t := &target{Channel: m.Channel, Message: m.ID, Action: v.id("action")}
	q := question{Title: "Show the payload of " + m.ID + "?", Hits: plural(len(m.Payload), "byte") +
		", and what its consumers responded, would be shown once.", Bound: m.Own, Then: []string{
		"The audit log gets an entry first: who looked, from where, and at which message. Without the entry nothing is " +
			"shown.",
		"Whoever sees the screen sees it too. The page is in no history of the browser that a reload would show: it asks " +
			"again."}}
	if raw {
		q.Title, q.Hits = "Show the payload of "+m.ID+" as it was sent?", plural(len(m.Payload),
			"byte")+" would be shown once."
	}
	p := confirmation{question: q, Target: t, Name: "Show it"}
	status := fasthttp.StatusOK
	if rc.IsPost() {
		if status, p.Again = d.stillFits(v, t, &q); p.Again == "" {
			d.showOnce(ctx, v, visit, m)
			return
		}
	}
	p.Seal = d.seal(v, t, q.Bound)
	d.answer(v, status, "confirm", q.Title, p)
}

// showOnce answers with the page of a message, with its payload. The page does not follow what happens.
func (d *Dashboard) showOnce(ctx context.Context, v *view, visit Visit, m Message) {
	if err := v.src.Reveal(ctx, v.who(), m.Channel, m.ID); err != nil {
		d.refuse(v, visit, err)
		return
	}
	raw := v.id("action") == rawAction
	d.o.Log.Info("a payload was revealed", "channel", m.Channel, "message", m.ID, "bytes", strconv.Itoa(len(m.Payload)),
		"address", d.o.Client(v.rc).String(), "raw", raw)
	if raw {
		sendRaw(v.rc, visit, &m)
		return
	}
	v.revealed = true
	p := v.messageView(m, nil)
	p.Forms = nil // other forms would be other looks
	d.answer(v, fasthttp.StatusOK, "message", "The payload of "+m.ID, p)
}
