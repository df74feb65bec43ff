package ui

import (
	"cmp"
	"context"
	"crypto/rand"
	"net/url"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/internal/model/apitype"
	"github.com/penstock-broker/penstock/internal/model/problem"
)

// mostAgain bounds the payload that the form of a message that is sent again is filled with, bytes.
const mostAgain = 32 << 10

// A publishForm is the page that sends a message, with what was typed. The broker promises to know who publishes, so
// the form asks for a producer and its token, as the API does; the token of the channel is known to management, except
// where tokens are not shown.
type publishForm struct {
	Channel, ChannelToken, Producer, Token, Type, Priority, ID, Payload string

	Wrong   map[string]string // what is wrong with a field, "" as name: with none of them
	Note    string            // what the form was not filled with
	Said    string            // what was done
	Offered bool              // there is a form
	Asks    bool              // for the token of the channel
}

// Error says what is wrong with a field.
func (p *publishForm) Error(field string) string { return p.Wrong[field] }

func newPublishForm() *publishForm {
	return &publishForm{Type: apitype.MediaJSON, Priority: "0", ID: newMessageID(), Wrong: map[string]string{},
		Offered: true}
}

// newMessageID makes an ID, so that a form that is sent twice makes one message.
func newMessageID() string { return "ui-" + strings.ToLower(rand.Text()) }

const publishTitle = "Send a message"

// publishPage shows the form: empty, or filled with a message that is to be sent again.
func publishPage(ctx context.Context, v *view) (title string, content any, err error) {
	if v.d.o.ReadOnly {
		return "", nil, errReadOnly
	}
	q := v.query("channel", "again")
	p := newPublishForm()
	p.Asks = v.d.o.HideTokens
	if p.Channel = q.Get("channel"); !q.Has("again") || p.Channel == "" {
		return publishTitle, p, nil
	}
	m, err := v.src.Message(ctx, p.Channel, q.Get("again"), "", false)
	if err != nil {
		return "", nil, err
	}
	p.Producer, p.Type, p.Priority = m.Producer, m.ContentType, strconv.Itoa(m.Priority)
	switch payload := string(m.Payload); {
	case !v.d.o.Payloads.whole():
		p.Note = "Payloads are hidden by BROKER_UI_PAYLOADS, so the form does not have that of the message."
	case m.Coding != "" && m.Coding != "identity", !utf8.ValidString(payload), strings.ContainsAny(payload, "\r\x00"):
		p.Note = "The payload of the message is compressed, or no text that a form keeps, so the form does not have it."
	case len(payload) > mostAgain:
		p.Note = "The payload of the message is longer than 32 KiB, so the form does not have it."
	default:
		p.Payload = payload
	}
	if len(m.Headers) > 0 {
		p.Note = strings.TrimSpace(p.Note + " The headers of the message are not sent again.")
	}
	return publishTitle + " again", p, nil
}

// publishURL is the page that sends a message to a channel, or again one that is there.
func publishURL(channel, again string) string {
	q := url.Values{"channel": {channel}}
	if again != "" {
		q.Set("again", again)
	}
	return Prefix + "publish?" + q.Encode()
}

// typed reads what a form says. A browser ends the lines of a text with CR LF, which nobody typed.
func typed(body []byte) *publishForm {
	var form fasthttp.Args
	form.ParseBytes(body)
	text := func(name string) string { return strings.TrimSpace(string(form.Peek(name))) }
	return &publishForm{Channel: text("channel"), ChannelToken: text("channelToken"), Producer: text("producer"),
		Token: text("token"), Type: text("type"), Priority: text("priority"), ID: text("id"), Wrong: map[string]string{},
		Offered: true, Payload: strings.ReplaceAll(string(form.Peek("payload")), "\r\n", "\n")}
}

// check finds what could not be sent in a header.
func (p *publishForm) check() {
	for field, value := range map[string]string{"channel": p.Channel, "channelToken": p.ChannelToken,
		"producer": p.Producer, "token": p.Token, "type": p.Type, "priority": p.Priority, "id": p.ID} {
		switch {
		case value == "" && (field == "channel" || field == "producer" || field == "token"):
			p.Wrong[field] = "This must not be empty."
		case strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r > '~' }):
			p.Wrong[field] = "This must be visible ASCII characters."
		}
	}
}

// fieldOf are the fields that refusals of a publish are about.
var fieldOf = map[string]string{"channel_not_found": "channel", "channel_paused": "channel",
	"group_paused": "channel", "channel_token_mismatch": "channelToken",
	"system_channel": "channel",
	"reserved_name":  "channel", "producer_not_found": "producer", "signature_required": "producer",
	"producer_full": "producer", "producer_token_mismatch": "token", "token_missing": "token",
	"invalid_content_type": "type", "invalid_priority": "priority", "invalid_message_id": "id",
	"duplicate_message_id": "id", "message_id_conflict": "id", "body_too_large": "payload", "rejected": "payload",
	"invalid_payload": "payload", "invalid_cloudevent": "payload"}

// publish sends what a form says.
func (d *Dashboard) publish(ctx context.Context, rc *fasthttp.RequestCtx, visit Visit) {
	v := d.view(rc, visit)
	p := typed(rc.PostBody())
	p.Asks = d.o.HideTokens
	var err error
	switch {
	case d.o.ReadOnly:
		err = errReadOnly
	case !ownForm(rc):
		err = errForeignForm
	}
	if err != nil {
		d.refuse(v, visit, err)
		return
	}
	status := fasthttp.StatusBadRequest
	if p.check(); len(p.Wrong) == 0 {
		var a Answer
		if a, err = d.send(ctx, v, p); err == nil {
			if strings.HasPrefix(a.Location, "/channel/") {
				redirect(rc, strings.TrimSuffix(Prefix, "/")+a.Location)
				return
			}
			p.Said = "The message is in the journal of this broker, and will be in the store in a moment."
			p.ID, status = newMessageID(), fasthttp.StatusOK
		} else {
			said := problem.FromChange(err)
			status = said.Status
			p.Wrong[fieldOf[said.Code]] = said.Detail
			if said.Code == "channel_token_mismatch" {
				p.Asks, p.Wrong["channelToken"] = true, "This must be the token of the channel, which is not shown to you."
			}
		}
	}
	title := publishTitle
	if len(p.Wrong) > 0 {
		title = "The message was not sent"
	}
	d.answer(v, status, "publish", title, p)
}

// send publishes a message, and says so in the log.
func (d *Dashboard) send(ctx context.Context, v *view, p *publishForm) (a Answer, err error) {
	var ch apitype.Channel
	err = v.src.Get(ctx, "/channel/{channel}", map[string]string{"channel": p.Channel}, nil, &ch)
	if err != nil {
		return a, err
	}
	headers := map[string]string{"X-Broker-Channel-Token": cmp.Or(ch.Token, p.ChannelToken),
		"X-Broker-Producer-ID": p.Producer, "X-Broker-Producer-Token": p.Token}
	for name, value := range map[string]string{"X-Broker-Message-ID": p.ID, "X-Broker-Message-Priority": p.Priority,
		fasthttp.HeaderContentType: p.Type} {
		if value != "" {
			headers[name] = value
		}
	}
	a, err = v.do(Request{Method: fasthttp.MethodPost, Path: "/channel/" + url.PathEscape(p.Channel) + "/broadcast",
		Headers: headers, Body: []byte(p.Payload)})
	log := d.o.Log.With("action", "publish", "channel", p.Channel, "producer", p.Producer, "address",
		d.o.Client(v.rc).String(), "request_id", string(v.rc.Response.Header.Peek("X-Request-ID")))
	if err != nil {
		log.Warn("an action by the dashboard was refused", "error", err)
	} else {
		log.Info("an action was done by the dashboard", "message", p.ID)
	}
	return a, err
}
