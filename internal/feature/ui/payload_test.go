package ui

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func payloads(t *testing.T, text string) Payloads {
	t.Helper()
	p, err := ParsePayloads(text)
	require.NoError(t, err)
	return p
}

func TestJSONIsIndentedWithItsNumbersAsTheyWereSent(t *testing.T) {
	p := payloads(t, "show")
	for src, want := range map[string]string{
		`{"id":820982911946154508,"total":129.00,"x":1E+2}`: "{\n  \"id\": 820982911946154508,\n  \"total\": 129.00,\n  \"x\": 1E+2\n}",
		` [ ] `: "[]", "{}": "{}", "\t7 ": "7", `"a\"\\"`: `"a\"\\"`, "null": "null",
		`[1,[2,{"a":"}"}],{}]`:                      "[\n  1,\n  [\n    2,\n    {\n      \"a\": \"}\"\n    }\n  ],\n  {}\n]",
		`{"a" : 1 , "a":2,"\u0061":"\u00e9\ud800"}`: "{\n  \"a\": 1,\n  \"a\": 2,\n  \"\\u0061\": \"\\u00e9\\ud800\"\n}",
	} {
		s := p.show([]byte(src), "", false)
		require.Equal(t, want, s.Text)
		require.Equal(t, "json", s.Form)
		require.False(t, s.Cut)
		require.Equal(t, len(src), s.Size)
	}
}

func TestFieldsAreHidden(t *testing.T) {
	const src = `{"card":{"number":"4111","cvc":7},"items":[{"price":1,"name":"n"},{"price":[1,2]}],"\u0063ard":["x"],"z":{"card":{"number":1}}}`
	for setting, want := range map[string]string{
		"show,$.card.*":           `{"card":{"number":"•••","cvc":"•••"},"items":[{"price":1,"name":"n"},{"price":[1,2]}],"\u0063ard":["•••"],"z":{"card":{"number":1}}}`,
		"show,$.card":             `{"card":"•••","items":[{"price":1,"name":"n"},{"price":[1,2]}],"\u0063ard":"•••","z":{"card":{"number":1}}}`,
		"show, $.items.*.price":   `{"card":{"number":"4111","cvc":7},"items":[{"price":"•••","name":"n"},{"price":"•••"}],"\u0063ard":["x"],"z":{"card":{"number":1}}}`,
		"show,$.*.card,$.*.*.cvc": `{"card":{"number":"4111","cvc":7},"items":[{"price":1,"name":"n"},{"price":[1,2]}],"\u0063ard":["x"],"z":{"card":"•••"}}`,
		"show,$.none":             src,
	} {
		p := payloads(t, setting)
		s := p.show([]byte(src), "text", false)
		var got, wanted any
		require.NoError(t, json.Unmarshal([]byte(s.Text), &got), s.Text)
		require.NoError(t, json.Unmarshal([]byte(want), &wanted))
		require.Equal(t, wanted, got, setting)
		require.Equal(t, []string{"json"}, s.Forms, "no other form shows them")
		require.NotEmpty(t, s.Hidden)
		s = p.show([]byte("card=4111"), "text", false)
		require.Empty(t, s.Text)
		require.NotEmpty(t, s.Hidden)
		require.Empty(t, p.show([]byte(src), "", true).Text, "what is coded is no JSON")
	}
	keys := payloads(t, "keys,$.b")
	require.Equal(t, "{\n  \"a\": text,\n  \"b\": \"•••\",\n  \"c\": [\n    number,\n    null,\n    true or false\n  ]\n}",
		keys.show([]byte(`{"a":"x","b":{"c":1},"c":[1,null,true]}`), "hex", false).Text)
	hide := payloads(t, "hide")
	s := hide.show([]byte(src), "text", false)
	require.Empty(t, s.Text+s.Form)
	require.NotEmpty(t, s.Hidden)
}

func TestPayloadsAreShownAsTextOrHex(t *testing.T) {
	p := payloads(t, "show")
	s := p.show([]byte("hello"), "", false)
	require.Equal(t, []string{"text", "hex"}, s.Forms)
	require.Equal(t, "hello", s.Text)
	s = p.show([]byte("\xff\x00ab"), "text", false)
	require.Equal(t, "hex", s.Form)
	require.Contains(t, s.Text, "ff 00 61 62")
	require.Empty(t, p.show(nil, "", false).Text)
	require.Equal(t, "[1]", p.show([]byte("[1]"), "text", false).Text)
}

func TestALargePayloadIsCut(t *testing.T) {
	p := payloads(t, "show")
	deep := strings.Repeat("[", 9000) + strings.Repeat("]", 9000)
	for _, src := range []string{`["` + strings.Repeat("é", 100_000) + `"]`, deep, "[" + strings.Repeat("1,", 50_000) + "1]",
		strings.Repeat("é", 100_000), strings.Repeat("x", 4<<20)} {
		for _, form := range []string{"json", "text", "hex"} {
			s := p.show([]byte(src), form, false)
			require.LessOrEqual(t, len(s.Text), mostPayload+16)
			require.NotContains(t, s.Text, "\uFFFD")
			require.True(t, s.Cut || len(src) < mostPayload, "%s %d", form, len(src))
		}
	}
	require.Less(t, len(p.show([]byte(strings.Repeat(`{"a":`, 9000)+"1"+strings.Repeat("}", 9000)), "", false).Text), 1<<17)
}

func TestSettingsOfPayloadsAreChecked(t *testing.T) {
	for _, text := range []string{"", "all", "show,card", "show,$", "show,$.", "show,$..a", "show,", "show,$.a[0]",
		"show" + strings.Repeat(",$.a", mostRules+1), "show,$." + strings.Repeat("a.", mostSteps) + "a"} {
		_, err := ParsePayloads(text)
		require.Error(t, err, text)
	}
}

func FuzzJSONIsIndented(f *testing.F) {
	for _, seed := range []string{`{"a":[1,2,{"b":"\"}"}]}`, "[]", `"\\"`, "-1e5", `[{},{"":{}}]`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, src string) {
		if !json.Valid([]byte(src)) || len(src) > 1000 {
			return
		}
		p, some, keys := payloads(t, "show"), payloads(t, "show,$.a.*,$.*.b"), payloads(t, "keys")
		text, more := p.indent([]byte(src))
		if !more {
			var got, want any
			require.NoError(t, json.Unmarshal([]byte(text), &got), text)
			require.NoError(t, json.Unmarshal([]byte(src), &want))
			require.Equal(t, want, got)
		}
		some.indent([]byte(src))
		keys.indent([]byte(src))
	})
}
