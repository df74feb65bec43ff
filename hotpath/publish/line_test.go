package publish

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/hotpath/metadata"
	"github.com/penstock-broker/penstock/internal/model/apitype"
	"github.com/penstock-broker/penstock/internal/model/problem"
)

func TestBatchLinesAreReadOrRefusedWhole(t *testing.T) {
	ok := map[string]Draft{
		`{"Payload":"x"}`:                               {payload: []byte("x")},
		`{"\u0050ayload":"x"}`:                          {payload: []byte("x")},
		`{"Payload":"\ud83d\ude00\\ud800"}`:             {payload: []byte("\U0001F600\\ud800")},
		`{"Payload":"x","Priority":0}`:                  {payload: []byte("x")},
		`{"Payload":""}`:                                {payload: []byte{}},
		" {\t\"Payload\" : \"a\\u00e9\\n\\\"b\\\\\" } ": {payload: []byte("aé\n\"b\\")},
		`{"PayloadBase64":"/wAB"}`:                      {payload: []byte{0xff, 0, 1}},
		`{"PayloadBase64":""}`:                          {payload: []byte{}},
		`{"MessageID":"m","Payload":"x","Priority":1023}`: {payload: []byte("x"), messageID: "m",
			Defaults: Defaults{Priority: 1023}},
		`{"Payload":"x","MessageID":null,"Priority":null}`: {payload: []byte("x")},
		`{"Payload":"x","Headers":{},"ContentType":"a/b"}`: {payload: []byte("x"), headers: map[string]string{},
			contentType: "a/b"},
		`{"Headers":{"a":"}\"{","b":"c"},"Payload":"x"}`: {payload: []byte("x"), headers: map[string]string{"a": `}"{`,
			"b": "c"}},
		"{\"Payload\":\"grüße \U0001F600\",\"MessageID\":\"\"}": {payload: []byte("grüße \U0001F600")},
	}
	for text, want := range ok {
		var got Draft
		require.NoError(t, got.line([]byte(text)), text)
		want.hasPayload = true
		require.Equal(t, want, got, text)
	}
	bad := []string{
		``, `null`, `[]`, `{}`, `"x"`, `{"Payload":"x"`, `{"Payload":"x"}}`, `{"Payload":"x"} {}`, `{"Payload":"x",}`,
		`{,"Payload":"x"}`,
		`{"Payload":null}`, `{"Payload":1}`, `{"Payload":{"a":1}}`, `{"payload":"x"}`, `{"Payload":"x","Payload":"y"}`,
		`{"Payload":"x","PayloadBase64":"eA=="}`,
		`{"MessageID":"m"}`, `{"Payload":"x","Priority":1.5}`, `{"Payload":"x","Priority":-1}`,
		`{"Payload":"x","Priority":1024}`, `{"Payload":"x","Priority":"1"}`, `{"Payload":"x","Priority":}`,
		`{"Payload":"x","MessageID":5}`, `{"Payload":"x","MessageID":"a b"}`, `{"Payload":"x","MessageID":".."}`,
		`{"Payload":"x","ContentType":"a\nb"}`, `{"Payload":"x","Headers":[]}`, `{"Payload":"x","Headers":{"a":1}}`,
		`{"Payload":"x","Headers":{"a":"b"`,
		`{"Payload":"x","Unknown":1}`, "{\"Payload\":\"a\nb\"}", "{\"Payload\":\"\xff\"}", `{"Payload":"\x"}`,
		`{"Payload":"\`, `{"PayloadBase64":"%%%"}`, `{"PayloadBase64":"eA"}`, `{'Payload':'x'}`,
		`{"Payload":"x","Priority":+5}`, `{"Payload":"x","Priority":007}`, `{"Payload":"x","Priority":1e1}`,
		`{"Payload":"x","Priority":[1]}`, `{"Payload":"x","MessageID":nullx}`,
		"{\"Payload\":\"x\",\"ContentType\":\"\xff\"}", "{\"Payload\":\"x\",\"Headers\":{\"a\":\"\xff\"}}",
		"{\"Pay\xffload\":\"x\"}", `{"PayloadBase64":"eA\n=="}`,
		`{"Payload":"x","Headers":{"a":null}}`, `{"Payload":"x","Headers":{"a":["b"]}}`,
		`{"Payload":"x","Headers":{"a":{"b":"c"}}}`, `{"Payload":"x","Headers":{"a":"b",}}`,
		`{"Payload":"x","Headers":{"a" "b"}}`,
		`{"Payload":"x","Headers":{,}}`, `{"Payload":"x","Headers":{]}`, `{"Payload":"x","Headers":{"a":"b"]}`,
		`{"Payload":"x","Headers":"a"}`, `{"Payload":"x","Headers":{true}}`, `{"Payload":"x","Headers":`,
		`{"Payload":"x","Headers":{"a":`,
	}
	for _, text := range bad {
		var l Draft
		err := l.line([]byte(text))
		require.Error(t, err, text)
		require.Equal(t, 400, problem.From(err).Status, text)
	}
}

// Another reader of the same line may take the other one of two, or a replacement
// for half a character: whoever signs, filters or routes by it would be deceived.
func TestBatchLinesThatReadersReadDifferentlyAreRefused(t *testing.T) {
	for text, want := range map[string]error{
		`{"Payload":"\ud800"}`:                            errSurrogate,
		`{"Payload":"\udc00"}`:                            errSurrogate,
		`{"Payload":"a\ud83dz"}`:                          errSurrogate,
		`{"Payload":"\ud83d\ud83d"}`:                      errSurrogate,
		`{"Payload":"\ud83d\u0041"}`:                      errSurrogate,
		`{"Payload":"\ud83d\n"}`:                          errSurrogate,
		`{"Payload":"\ude00\ud83d"}`:                      errSurrogate,
		`{"Payload":"\ud83d\ude00\uDE00"}`:                errSurrogate,
		`{"Payload":"x","ContentType":"a/\uD800"}`:        errSurrogate,
		`{"Payload":"x","Headers":{"a":"\udfff"}}`:        errSurrogate,
		`{"Payload":"x","Headers":{"\udfff":"a"}}`:        errSurrogate,
		`{"Payload":"x","Payload":"y"}`:                   errRepeated,
		`{"Payload":"x","\u0050ayload":"y"}`:              errRepeated,
		`{"Payload":"x","PayloadBase64":"eA=="}`:          errLine,
		`{"Payload":"x","Priority":1,"Priority":2}`:       errRepeated,
		`{"Payload":"x","MessageID":null,"MessageID":""}`: errRepeated,
		`{"Headers":{},"Payload":"x","Headers":null}`:     errRepeated,
		`{"Payload":"x","Headers":{"a":"1","a":"1"}}`:     errHeaderTwice,
		`{"Payload":"x","Headers":{"X-A":"1","x-a":"2"}}`: errHeaderTwice,
	} {
		var l Draft
		require.Equal(t, want, l.line([]byte(text)), text)
	}
	names := make([]string, metadata.MaxNames+1)
	for i := range names {
		names[i] = fmt.Sprintf(`"h%d":"v"`, i)
	}
	var l Draft
	require.Equal(t, metadata.ErrSize, l.line([]byte(`{"Payload":"x","Headers":{`+strings.Join(names, ",")+`}}`)))
	err := l.line([]byte(`{"` + strings.Repeat("\xff", 1<<20) + `":1}`))
	require.Less(t, len(problem.From(err).Detail), 1<<10, "a refusal is short")
}

func TestBatchLinesNameNoHeadersOfTheBroker(t *testing.T) {
	for _, name := range []string{
		"X-Broker-Scheduled-For", "x-broker-RECURRENCE", "X-Broker-Message-ID", "x-broker-anything",
		"X-BROKER-Consumer-Token", "X_Broker_Scheduled_For",
		"Host", "content-length", "Authorization", "x-key",
	} {
		err := checkLineHeaders(map[string]string{"a": "b", name: "v"}, "X-Key")
		require.Equal(t, "invalid_metadata_headers", problem.From(err).Code, name)
		require.Contains(t, problem.From(err).Detail, strconv.Quote(name), "the refusal says which")
	}
	long := checkLineHeaders(map[string]string{"X-Broker-" + strings.Repeat("a", 10_000): "v"}, "X-Key")
	require.Less(t, len(problem.From(long).Detail), 300)
	require.NoError(t, checkLineHeaders(map[string]string{"X-Tenant": "a", "Broker": "b"}, "X-Key"))
}

// A line of the largest size may hold millions of values, or brackets in brackets. The
// reader refuses it at the first value that a line does not have: it builds nothing for
// the values behind it and does not descend.
func TestAHostileBatchLineCostsNoMemory(t *testing.T) {
	const size = 8 << 20
	for name, line := range map[string]string{
		"values":         `{"Payload":[` + strings.Repeat("0,", size/2) + `0]}`,
		"brackets":       `{"Payload":` + strings.Repeat("[", size),
		"objects":        `{"Headers":` + strings.Repeat(`{"a":`, size/5),
		"members":        `{` + strings.Repeat(`"a":0,`, size/6) + `"Payload":"x"}`,
		"header members": `{"Payload":"x","Headers":{"a":` + strings.Repeat(`"x","a":`, size/8) + `"x"}}`,
	} {
		text := []byte(line)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		var l Draft
		err := l.line(text)
		runtime.ReadMemStats(&after)
		require.Error(t, err, name)
		require.Equal(t, 400, problem.From(err).Status, name)
		require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(1<<20), name)
	}
}

// What the reader accepts is JSON, and it reads the same as encoding/json does.
func FuzzBatchLine(f *testing.F) {
	for _, seed := range []string{`{"Payload":"x"}`, `{"PayloadBase64":"/wAB","Priority":7}`,
		`{"MessageID":"m","Headers":{"a":"b\"}"},"Payload":"\ud83d\ude00"}`, `{"Payload":"\ud800"}`,
		`{"Payload":"x","Payload":"y"}`, `{"Payload":"x","Priority":+1}`, `{"Payload":"x","Priority":01}`,
		`{"Payload":"x","Headers":{"a":"1","A":"2"}}`, `{"Payload":"x","Headers":{"a":null}}`,
		`{"Payload":"x","Headers":{"a":{"b":"c"}}}`, `{"Payload":"\\ud800\ud83d\ude00\ud83d"}`,
		"{\"Payload\":\"x\",\"ContentType\":\"\xff\"}", `{"PayloadBase64":"eA\n=="}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		var l Draft
		if err := l.line(line); err != nil {
			require.Equal(t, 400, problem.From(err).Status)
			return
		}
		require.True(t, json.Valid(line), "%q", line)
		want := apitype.BatchLine{Priority: new(int)}
		dec := json.NewDecoder(bytes.NewReader(line))
		dec.DisallowUnknownFields()
		require.NoError(t, dec.Decode(&want), "%q", line)
		if want.Payload != nil {
			require.Equal(t, *want.Payload, string(l.payload))
			require.True(t, utf8.Valid(l.payload))
		} else {
			require.Equal(t, want.PayloadBase64, l.payload)
		}
		if want.Priority == nil { // null, as good as absent
			want.Priority = new(int)
		}
		require.Equal(t, *want.Priority, l.Priority)
		require.Equal(t, want.MessageID, l.messageID)
		require.Equal(t, want.ContentType, l.contentType)
		require.Equal(t, len(want.Headers), len(l.headers))
		for name, value := range l.headers {
			require.Equal(t, want.Headers[name], value)
		}
		requireStrict(t, line)
	})
}

// requireStrict checks, apart from the reader, what encoding/json forgives: bytes that
// are no UTF-8, halves of surrogate pairs, and names that occur twice in an object.
func requireStrict(t *testing.T, line []byte) {
	require.True(t, utf8.Valid(line), "%q", line)
	whole := bytes.ReplaceAll(line, []byte(`\\`), nil)
	whole = regexp.MustCompile(`(?i)\\ud[89ab][0-9a-f]{2}\\ud[c-f][0-9a-f]{2}`).ReplaceAll(whole, nil)
	require.NotRegexp(t, `(?i)\\ud[89a-f][0-9a-f]{2}`, string(whole))
	dec := json.NewDecoder(bytes.NewReader(line))
	var seen []map[string]bool
	for name := false; ; { // whether a name comes next
		token, err := dec.Token()
		if err == io.EOF {
			return
		}
		require.NoError(t, err)
		switch v := token.(type) {
		case json.Delim:
			if name = v == '{'; name {
				seen = append(seen, map[string]bool{})
			} else {
				seen, name = seen[:len(seen)-1], true
			}
		case string:
			if name {
				v = strings.ToLower(v)
				require.False(t, seen[len(seen)-1][v], "%q", line)
				seen[len(seen)-1][v] = true
			}
			name = !name
		default:
			name = true
		}
	}
}

func TestAControlCharacterIsFoundAtEachPlace(t *testing.T) {
	for size := range 20 {
		for at := range size {
			for c := range 256 {
				text := bytes.Repeat([]byte{0x20}, size)
				text[at] = byte(c)
				require.Equal(t, c < 0x20, hasControl(text), "%q", text)
				text = bytes.Repeat([]byte{0xff}, size)
				text[at] = byte(c)
				require.Equal(t, c < 0x20, hasControl(text), "%q", text)
			}
		}
	}
}

// A payload of 1 KiB, as text and as the JSON that most producers send: each quote of it is escaped.
func BenchmarkBatchLine(b *testing.B) {
	order := `{"order":17,"customer":"c-29","lines":[{"sku":"a-1","amount":2,"price":"3.50"}],"note":"as soon as possible"},`
	inside, err := json.Marshal("[" + strings.Repeat(order, 1024/len(order)) + "0]")
	require.NoError(b, err)
	for name, payload := range map[string]string{
		"text": `"` + strings.Repeat("x", 1024) + `"`,
		"JSON": string(inside),
	} {
		b.Run(name, func(b *testing.B) {
			line := []byte(`{"MessageID":"m-1","Priority":7,"Payload":` + payload + `}`)
			b.SetBytes(int64(len(line)))
			b.ReportAllocs()
			for b.Loop() {
				var l Draft
				if err := l.line(line); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
