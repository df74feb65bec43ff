package hotpath

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/problem"
)

func TestBatchLinesAreReadOrRefusedWhole(t *testing.T) {
	ok := map[string]batchLine{
		`{"Payload":"x"}`: {payload: []byte("x")},
		`{"Payload":""}`:  {payload: []byte{}},
		" {\t\"Payload\" : \"a\\u00e9\\n\\\"b\\\\\" } ":         {payload: []byte("aé\n\"b\\")},
		`{"PayloadBase64":"/wAB"}`:                              {payload: []byte{0xff, 0, 1}},
		`{"PayloadBase64":""}`:                                  {payload: []byte{}},
		`{"MessageID":"m","Payload":"x","Priority":1023}`:       {payload: []byte("x"), messageID: "m", priority: 1023},
		`{"Payload":"x","MessageID":null,"Priority":null}`:      {payload: []byte("x")},
		`{"Payload":"x","Headers":{},"ContentType":"a/b"}`:      {payload: []byte("x"), headers: map[string]string{}, contentType: "a/b"},
		`{"Headers":{"a":"}\"{","b":"c"},"Payload":"x"}`:        {payload: []byte("x"), headers: map[string]string{"a": `}"{`, "b": "c"}},
		"{\"Payload\":\"grüße \U0001F600\",\"MessageID\":\"\"}": {payload: []byte("grüße \U0001F600")},
	}
	for text, want := range ok {
		var got batchLine
		require.NoError(t, got.parse([]byte(text)), text)
		want.hasPayload = true
		require.Equal(t, want, got, text)
	}
	bad := []string{
		``, `null`, `[]`, `{}`, `"x"`, `{"Payload":"x"`, `{"Payload":"x"}}`, `{"Payload":"x"} {}`, `{"Payload":"x",}`, `{,"Payload":"x"}`,
		`{"Payload":null}`, `{"Payload":1}`, `{"Payload":{"a":1}}`, `{"payload":"x"}`, `{"Payload":"x","Payload":"y"}`, `{"Payload":"x","PayloadBase64":"eA=="}`,
		`{"MessageID":"m"}`, `{"Payload":"x","Priority":1.5}`, `{"Payload":"x","Priority":-1}`, `{"Payload":"x","Priority":1024}`, `{"Payload":"x","Priority":"1"}`, `{"Payload":"x","Priority":}`,
		`{"Payload":"x","MessageID":5}`, `{"Payload":"x","MessageID":"a b"}`, `{"Payload":"x","MessageID":".."}`, `{"Payload":"x","ContentType":"a\nb"}`, `{"Payload":"x","Headers":[]}`, `{"Payload":"x","Headers":{"a":1}}`, `{"Payload":"x","Headers":{"a":"b"`,
		`{"Payload":"x","Unknown":1}`, "{\"Payload\":\"a\nb\"}", "{\"Payload\":\"\xff\"}", `{"Payload":"\x"}`, `{"Payload":"\`, `{"PayloadBase64":"%%%"}`, `{"PayloadBase64":"eA"}`, `{'Payload':'x'}`,
	}
	for _, text := range bad {
		var l batchLine
		err := l.parse([]byte(text))
		require.Error(t, err, text)
		require.Equal(t, 400, problem.From(err).Status, text)
	}
}

// What the reader accepts is JSON, and it reads the same as encoding/json does.
func FuzzBatchLine(f *testing.F) {
	for _, seed := range []string{`{"Payload":"x"}`, `{"PayloadBase64":"/wAB","Priority":7}`, `{"MessageID":"m","Headers":{"a":"b\"}"},"Payload":"\ud83d\ude00"}`, `{"Payload":"\ud800"}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		var l batchLine
		if err := l.parse(line); err != nil {
			require.Equal(t, 400, problem.From(err).Status)
			return
		}
		require.True(t, json.Valid(line), "%q", line)
		var want struct {
			Payload, PayloadBase64 *string
			MessageID, ContentType string
			Priority               int
			Headers                map[string]string
		}
		dec := json.NewDecoder(bytes.NewReader(line))
		dec.DisallowUnknownFields()
		require.NoError(t, dec.Decode(&want), "%q", line)
		if want.Payload != nil {
			require.Equal(t, *want.Payload, string(l.payload))
			require.True(t, utf8.Valid(l.payload))
		} else {
			b, err := base64.StdEncoding.DecodeString(*want.PayloadBase64)
			require.NoError(t, err)
			require.Equal(t, b, l.payload)
		}
		require.Equal(t, want.Priority, l.priority)
	})
}

func BenchmarkBatchLine(b *testing.B) {
	line := []byte(`{"MessageID":"m-1","Priority":7,"Payload":"` + string(bytes.Repeat([]byte("x"), 1024)) + `"}`)
	b.SetBytes(int64(len(line)))
	b.ReportAllocs()
	for b.Loop() {
		var l batchLine
		if err := l.parse(line); err != nil {
			b.Fatal(err)
		}
	}
}
