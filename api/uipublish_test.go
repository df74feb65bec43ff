package api

import (
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/feature/ui"
)

func TestTheFormOfAMessageKeepsWhatWasTyped(t *testing.T) {
	w, _ := newUIWorld(t, nil)
	w.channel()
	send := func(change map[string]string, headers ...string) reply {
		form := url.Values{"channel": {"c"}, "producer": {"sender<1>"}, "token": {"t"}, "type": {"text/plain"},
			"priority": {"7"}, "id": {"mine"}, "payload": {"<one>\r\ntwo"}}
		for name, value := range change {
			form.Set(name, value)
		}
		return w.do("POST", "/ui/publish", form.Encode(), append(headers, formHeader)...)
	}
	for _, c := range []struct {
		field, value, said string
		status             int
	}{{"channel", "", "must not be empty", 400}, {"producer", " ", "must not be empty", 400},
		{"token", "", "must not be empty", 400}, {"type", "a\r\nX-Broker-Admin-Token: x", "visible ASCII", 400},
		{"id", "ü", "visible ASCII", 400}, {"channel", "none", "channel", 404}} {
		r := send(map[string]string{c.field: c.value}).is(c.status)
		require.Equal(t, "The message was not sent", r.title())
		require.Regexp(t, `name="`+c.field+`"[^>]*><p class="wrong" role="alert">[^<]*`+c.said, r.Body)
		for _, kept := range []string{`value="7"`, "&lt;one&gt;\ntwo</textarea>"} {
			require.Contains(t, r.Body, kept, c.field)
		}
	}
	require.Empty(t, w.data)
	require.Contains(t, send(nil, "Origin: https://evil.example").Header("Location"), "/ui/login")
	send(nil, "Origin: http://localhost:3000").is(403)
	send(nil, "Sec-Fetch-Site: same-site").is(403)
	require.Empty(t, w.data)
	send(nil, "Origin: http://broker", "Sec-Fetch-Site: same-origin").is(200)
	require.Equal(t, []string{"broadcast <nil> <nil> <nil>"}, w.data)
	send(map[string]string{"payload": strings.Repeat("x", 600<<10)}).is(413)
}

func TestTheFormOfAMessageIsFilledWithOne(t *testing.T) {
	w, _ := newUIWorld(t, nil)
	w.channel()
	for key, payload := range map[string]string{"text": "<a>\n", "carriage": "a\r\n", "bytes": "\xff",
		"long": strings.Repeat("x", 40<<10)} {
		w.insert(durable.Message{Key: key, ContentType: "text/csv", Priority: 1000, Payload: []byte(payload)})
	}
	require.Contains(t, w.page("/ui/channel/c/message/text").is(200).Body, "/ui/publish?again=text&amp;channel=c")
	r := w.page("/ui/publish?channel=c&again=text").is(200)
	for _, text := range []string{"\n&lt;a&gt;\n</textarea>", `value="text/csv"`, `value="1000"`, `value="c"`} {
		require.Contains(t, r.Body, text)
	}
	require.NotContains(t, r.Body, `value="text"`, "it is another message, with another ID")
	for key, said := range map[string]string{"carriage": "no text that a form keeps", "bytes": "no text that a form keeps",
		"long": "longer than 32 KiB"} {
		require.Contains(t, w.page("/ui/publish?channel=c&again="+key).is(200).Body, said)
	}
	w.page("/ui/publish?channel=c&again=none").is(404)
	require.Contains(t, w.page("/ui/channel/c").Body, "/ui/publish?channel=c")

	only, _ := newUIWorld(t, func(o *Options) {
		o.UI = ui.New(ui.Options{AdminToken: adminToken, Key: []byte(secret), ReadOnly: true})
	})
	only.channel()
	only.insert(durable.Message{Key: "m"})
	only.page("/ui/publish").is(405)
	only.do("POST", "/ui/publish", "channel=c", formHeader).is(405)
	require.NotContains(t, only.page("/ui/channel/c/message/m").is(200).Body, "/ui/publish")

	hide, err := ui.ParsePayloads("show,$.card")
	require.NoError(t, err)
	hidden, _ := newUIWorld(t, func(o *Options) {
		o.UI = ui.New(ui.Options{AdminToken: adminToken, Key: []byte(secret), Payloads: hide})
	})
	hidden.channel()
	hidden.insert(durable.Message{Key: "m", Payload: []byte(`{"card":"4111"}`)})
	require.NotContains(t, hidden.page("/ui/publish?channel=c&again=m").is(200).Body, "4111")
}
