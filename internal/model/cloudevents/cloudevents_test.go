package cloudevents

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

func TestModeOf(t *testing.T) {
	for kind, want := range map[string]Mode{
		"": None, "application/json": None, "application/cloudevent": None, "text/plain": None,
		"application/CloudEvents+JSON":                Structured,
		"application/cloudevents+json; charset=UTF-8": Structured, "application/cloudevents-batch+json": Batch,
	} {
		got, err := ModeOf(kind)
		require.NoError(t, err, kind)
		require.Equal(t, want, got, kind)
	}
	for _, kind := range []string{"application/cloudevents", "application/cloudevents+xml",
		"application/cloudevents+json; charset=latin1", "application/cloudevents+json;;x"} {
		_, err := ModeOf([]byte(kind))
		require.ErrorIs(t, err, ErrFormat, kind)
	}
}

func TestBinaryAndStructuredEventsAreCompared(t *testing.T) {
	binary := func(contentType, payload string, more ...string) Message {
		m := Message{ContentType: contentType, Payload: []byte(payload), Headers: map[string]string{"ce-id": "1",
			"ce-source": "/s", "ce-type": "t", "ce-specversion": "1.0"}}
		for i := 0; i < len(more); i += 2 {
			m.Headers[more[i]] = more[i+1]
		}
		return m
	}
	text := func(more string) Message {
		return Message{ContentType: StructuredType, Payload: []byte(`{"id":"1","source":"/s","type":"t","specversion":"1.0"` +
			more + "}")}
	}
	for name, pair := range map[string][2]Message{
		"JSON":                {binary("application/json", `{"a": 1}`), text(`,"data":{"a":1}`)},
		"JSON with a charset": {binary("application/json; charset=utf-8", `1`), text(`,"data":1`)},
		"text":                {binary("text/plain", "a\nb"), text(`,"datacontenttype":"text/plain","data":"a\nb"`)},
		"bytes":               {binary("application/octet-stream", "\xff\x00"), text(`,"data_base64":"/wA="`)},
		"JSON in base64": {binary("application/json", "1"),
			text(`,"datacontenttype":"application/json","data_base64":"MQ=="`)},
		"no data": {binary("application/octet-stream", ""), text("")},
		"percent-encoding": {binary("application/octet-stream", "", "ce-subject", "%E2%82%ac%2"),
			text(`,"subject":"€%2"`)},
		"numbers, and other data": {binary("application/octet-stream", "", "ce-n", "-5", "ce-b", "true", "x-other", "1"),
			text(`,"n":-5,"b":true,"absent":null`)},
	} {
		require.True(t, Equal(pair[0], pair[1]), name)
		require.True(t, Equal(pair[1], pair[0]), name)
	}
	for name, pair := range map[string][2]Message{
		"data":       {binary("application/json", `{"a":1}`), text(`,"data":{"a":2}`)},
		"a type":     {binary("text/plain", `1`), text(`,"data":1`)},
		"a subject":  {binary("application/octet-stream", "", "ce-subject", "a"), text("")},
		"no event":   {binary("application/octet-stream", ""), {ContentType: StructuredType, Payload: []byte("{}")}},
		"order":      {text(`,"data":{"a":1,"b":2}`), text(`,"data":{"b":2,"a":1}`)},
		"JSON, text": {text(`,"data":"x"`), text(`,"datacontenttype":"text/plain","data":"x"`)},
	} {
		require.False(t, Equal(pair[0], pair[1]), name)
	}
}

func TestAttributesAreTextsThatReadersAgreeOn(t *testing.T) {
	event := func(more string) []byte {
		return []byte(`{"id":"1","source":"/s","type":"t","specversion":"1.0"` + more + "}")
	}
	for _, good := range []string{`,"subject":"\ud83d\ude00"`, `,"subject":"\\ud800"`, `,"subject":"\u00e4\ufffd"`,
		`,"data":{"a":"\u0000\ud800"}`} {
		_, err := Parse(event(good))
		require.NoError(t, err, good)
	}
	for _, bad := range []string{
		`,"subject":"\ud800"`, `,"subject":"\ude00\ud83d"`, `,"subject":"a\u0000"`, `,"x":"\u007f"`, `,"x":"\u0085"`,
		`,"datacontenttype":"a\n"`,
		`,"datacontenttype":"\ud800"`,
	} {
		_, err := Parse(event(bad))
		require.ErrorAs(t, err, new(*Error), bad)
	}
	_, err := ParseBinary(map[string]string{"id": "a%00", "source": "/s", "type": "t", "specversion": "1.0"})
	require.EqualError(t, err, `CloudEvents: the attribute "id" has control characters.`)
}

func TestAttributesAreBounded(t *testing.T) {
	event := func(more string) []byte {
		return []byte(`{"id":"1","source":"/s","type":"t","specversion":"1.0"` + more + "}")
	}
	_, err := Parse(event(`,"subject":"` + strings.Repeat("x", 60<<10) + `"`))
	require.NoError(t, err)
	_, err = Parse(event(`,"data":"` + strings.Repeat("x", 1<<20) + `"`))
	require.NoError(t, err)
	_, err = Parse(event(`,"data_base64":"` + strings.Repeat("AAAA", 1<<18) + `"`))
	require.NoError(t, err)
	var many strings.Builder
	for i := range 20_000 {
		fmt.Fprintf(&many, `,"x%d":1`, i)
	}
	for _, more := range []string{many.String(), `,"subject":"` + strings.Repeat("x", 64<<10) + `"`,
		`,"` + strings.Repeat("x", 64<<10) + `":null`} {
		_, err = Parse(event(more))
		require.ErrorIs(t, err, errAttributes)
	}
}

// What is wrong is said without a value of the event, because others read the logs.
func TestErrorsQuoteNoValues(t *testing.T) {
	_, err := Parse([]byte(`{"id":"secret","source":"secret","type":"secret","specversion":"secret"}`))
	require.Error(t, err)
	require.NotContains(t, err.Error(), "secret")
	_, err = ParseBinary(map[string]string{"id": "secret", "time": "secret", "source": "s", "type": "t",
		"specversion": "1.0"})
	require.Error(t, err)
	require.NotContains(t, err.Error(), "secret")
}

// What is accepted is JSON, its attributes are what encoding/json reads, and no name occurs twice.
func FuzzParse(f *testing.F) {
	for _, more := range []string{"", `,"subject":"\ud83d\ude00"`, `,"data":{"a":"\ud800"}`, `,"data_base64":"AA==","data":[1,"]"]`,
		`,"x":-5,"y":true,"z":null`, `,"subject":"\udc00"`, `,"id":"2"`, `,"data":[[1]]}{`, ",\"\xff\":1"} {
		f.Add([]byte(`{"id":"1","source":"/s","type":"t","specversion":"1.0"` + more + "}"))
	}
	f.Add([]byte(strings.Repeat(`{"a":`, 1000)))
	f.Fuzz(func(t *testing.T, text []byte) {
		id, err := Parse(text)
		if err != nil {
			require.ErrorAs(t, err, new(*Error))
			return
		}
		require.True(t, utf8.Valid(text))
		m := Message{ContentType: StructuredType, Payload: text}
		require.True(t, Equal(m, m))
		var want map[string]json.RawMessage
		require.NoError(t, json.Unmarshal(text, &want))
		for name, value := range map[string]string{"id": id.ID, "source": id.Source} {
			var text string
			require.NoError(t, json.Unmarshal(want[name], &text))
			require.Equal(t, text, value)
		}
		d := json.NewDecoder(bytes.NewReader(text))
		_, _ = d.Token()
		n := 0
		for ; d.More(); n++ {
			_, err := d.Token()
			require.NoError(t, err)
			require.NoError(t, d.Decode(new(json.RawMessage)))
		}
		require.Len(t, want, n, "no name occurs twice")
	})
}

// An event with 1 KiB of data.
func BenchmarkParse(b *testing.B) {
	data := `{"order":17,"customer":"c-29","lines":[{"sku":"a-1","amount":2,"price":"3.50"}],"note":"as soon as possible"},`
	event := []byte(`{"id":"1","source":"/shop","type":"com.example.order.created","specversion":"1.0",` +
		`"datacontenttype":"application/json","time":"2026-01-31T15:04:05Z","data":[` +
		strings.Repeat(data, 1024/len(data)) + `0]}`)
	b.SetBytes(int64(len(event)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Parse(event); err != nil {
			b.Fatal(err)
		}
	}
}
