package filter

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func example() *Message {
	return &Message{Payload: []byte(`{"a":1,"s":"aaa","l":[3,4],"t":true,"n":null}`), Headers: []byte("X-A:y\n"),
		Priority:    4,
		ContentType: "application/json", Producer: "p1"}
}

func TestAFilterDecides(t *testing.T) {
	for text, want := range map[string]Verdict{
		"payload.a == 1":                         Match,
		"payload.a > 0.5 && headers['x-a']=='y'": Match,
		"payload.a == 2":                         NoMatch,
		"payload.s.matches('^a+$')":              Match,
		"matches(payload.s, 'b')":                NoMatch,
		"payload.l.exists(x, x == 4)":            Match,
		"payload.l[0] == 3":                      Match,
		"payload.l[9] == 3":                      Missing,
		"has(payload.none)":                      NoMatch,
		"payload.none == 1":                      Missing,
		"payload.none.deeper == 1":               Missing,
		"payload.n.deeper == 1":                  Missing,
		"payload.none == 1 || payload.a == 1":    Match,
		"headers['x'] == 'y'":                    Missing,
		"'x' in headers":                         NoMatch,
		"payload.s > 5":                          Failed,
		"payload.a":                              Failed,
		"payload.t":                              Match,
		"payload == null":                        NoMatch,
		"priority > 3":                           Match,
		"contentType.startsWith('application/')": Match,
		"producer == 'p1'":                       Match,
		"int(payload.a) % 2 == 1":                Match,
	} {
		f, err := New(text)
		require.NoError(t, err, text)
		require.Equal(t, want, f.Decide(example()), text)
	}
}

func TestWhatIsNoJSONIsNull(t *testing.T) {
	for _, payload := range []string{"", "hello", "{", `{"a":1} x`, "\xff"} {
		m := &Message{Payload: []byte(payload)}
		require.Equal(t, Match, Of("payload == null").Decide(m), payload)
		require.Equal(t, Missing, Of("payload.a == 1").Decide(m), payload)
	}
}

func TestTheAttributesOfAStructuredEventAreHeaders(t *testing.T) {
	m := &Message{Payload: []byte(`{"type":"sold","sequence":3,"data":{"type":"x"}}`), Attributes: true}
	require.Equal(
		t, Match, Of("headers['ce-type'] == 'sold' && headers['ce-sequence'] == '3' && !('ce-data' in headers)").Decide(m))
}

func TestAnErrorSaysWhere(t *testing.T) {
	for text, want := range map[string]string{
		"foo":                          "line 1, column 1: undeclared reference to 'foo'",
		"payload.a +":                  "line 1, column 12",
		"payload.a ==\n  foo":          "line 2, column 3",
		"1":                            "no bool",
		"payload.s.matches(payload.s)": "line 1, column 26: the pattern of matches must be a literal string",
		"payload.s.matches('(')":       "missing closing )",
		"payload.s.matches('(a{100}){10}b{900}')":                                      "too large",
		"payload.s.matches('" + strings.Repeat("a", 300) + "')":                        "at most 256 bytes",
		"payload.l.all(a, payload.l.all(b, payload.l.all(c, payload.l.all(d, true))))": "nesting limit",
		strings.Repeat("(", 40) + "true" + strings.Repeat(")", 40):                     "recursion limit",
		strings.Repeat(" ", MaxBytes) + "true":                                         "at most 2048 bytes",
	} {
		_, err := New(text)
		require.ErrorContains(t, err, want, text)
		require.Nil(t, Of(text))
	}
}

// Whatever an expression does with a large payload, it ends soon and as no match.
func TestTheCostOfAnEvaluationIsBounded(t *testing.T) {
	large := `{"s":"` + strings.Repeat("ab", 1<<18) + `","d":` + strings.Repeat(`{"a":[`, 3000) + "1" +
		strings.Repeat(`]}`, 3000) +
		`,"l":[` + strings.Repeat("1,", 100_000) + `1]}`
	for _, text := range []string{
		"payload.l.all(a, payload.l.all(b, payload.l.all(c, true)))",
		"payload.l.all(x, payload == payload)",
		"payload.l.all(x, size(payload.s) > 0)",
		"payload.l.map(x, payload.s + payload.s).size() > 1",
		"payload.s.matches('(a{50}b|b{60}c|.{70}d)x')",
		"payload.l.all(x, payload.s.contains('zz') || true)",
		"payload.l.all(x, bytes(payload.s) != b'')",
		"payload.l.all(x, payload.l == payload.l)",
		"payload.l.all(x, 1.0 in payload.l || 2.0 in payload.l)",
	} {
		f, err := New(text)
		require.NoError(t, err, text)
		m := &Message{Payload: []byte(large)}
		begun := time.Now()
		require.Equal(t, TooLarge, f.Decide(m), text)
		require.Less(t, time.Since(begun), time.Minute, text)
	}
	m := &Message{Payload: []byte("[" + strings.Repeat("{},", 200_000) + "{}]")}
	require.Equal(t, TooLarge, Of("payload == null").Decide(m), "it would take too much memory")
}

func TestAFilterIsCompiledOnceAndIsSafeForConcurrentUse(t *testing.T) {
	f := Of("payload.a == 1 && payload.s.matches('a+')")
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 100 {
				if Of("payload.a == 1 && payload.s.matches('a+')") != f || f.Decide(example()) != Match {
					t.Error("another filter")
				}
			}
		})
	}
	wg.Wait()
}

func BenchmarkDecide(b *testing.B) {
	payload := []byte(
		`{"id":"abc","total":150.5,"items":[{"sku":"a","n":1},{"sku":"b","n":2}],"customer":{"name":"x","vip":true}}`)
	for name, text := range map[string]string{"headers": "priority > 3 && headers['x-a'] == 'y'",
		"payload": "payload.total >= 100 && payload.customer.vip"} {
		b.Run(name, func(b *testing.B) {
			f := Of(text)
			b.ReportAllocs()
			for b.Loop() {
				if f.Decide(&Message{Payload: payload, Headers: []byte("X-A:y\n"), Priority: 4}) != Match {
					b.Fatal("no match")
				}
			}
		})
	}
}

// However an integer is written, it equals itself only.
func TestIntegersOfJSONAreComparedExactly(t *testing.T) {
	decide := func(text, payload string) Verdict { return Of(text).Decide(&Message{Payload: []byte(payload)}) }
	for _, n := range []string{"820982911946154508", "820982911946154508.0", "8.20982911946154508e17",
		"820982911946154508000e-3", "82098291194615450.8E+1"} {
		for _, text := range []string{"payload.id == 820982911946154508", "820982911946154508 == payload.id",
			"payload.id in [820982911946154508]",
			"payload.id > 820982911946154507 && payload.id < 820982911946154509", "payload.id == 820982911946154508u",
			"[payload.id] == [820982911946154508]"} {
			require.Equal(t, Match, decide(text, `{"id":`+n+`}`), "%s %s", text, n)
			near := strings.Replace(strings.Replace(n, "508", "509", 1), "50.8", "50.9", 1)
			require.Equal(t, NoMatch, decide(text, `{"id":`+near+`}`), "%s %s", text, near)
		}
	}
	for payload, text := range map[string]string{
		`{"n":1e3}`:                  "payload.n == 1000",
		`{"n":1000.0}`:               "payload.n == 1000",
		`{"n":-9223372036854775808}`: "payload.n == -9223372036854775808",
		`{"n":18446744073709551615}`: "payload.n == 18446744073709551615u && payload.n > " +
			"18446744073709551614u",
		`{"n":9007199254740993}`:  "payload.n != 9007199254740992 && payload.n != 9007199254740994",
		`{"n":9007199254740992}`:  "payload.n != 9007199254740993 && payload.n == 9007199254740992.0",
		`{"n":123456789012345e4}`: "payload.n == 1234567890123450000 && payload.n != 1234567890123450001",
		`{"n":1700000000000000001}`: "payload.n / 1e9 > 1.6e9 && payload.n * 2.0 > 3e18 && payload.n - " +
			"1 == 1700000000000000000",
		`{"n":9007199254740993,"m":1.5}`: "payload.n + payload.m > 9e15 && payload.m * payload.n > 1e16 && " +
			"payload.m + 1 > 2.4",
		`{"n":9007199254740993,"m":9007199254740992}`: "payload.n != payload.m",
		`{"n":0.1}`:                            "payload.n == 0.1",
		`{"n":1e400,"m":1}`:                    "payload.n == null && payload.m == 1",
		`{"n":123456789012345678901234567890}`: "payload.n > 1e29",
		`{"n":{"l":[9007199254740993,"s",null]}}`: "payload.n.l[0] == 9007199254740993 && payload.n.l[1] == 's' && " +
			"payload.n.l[2] == null",
	} {
		require.Equal(t, Match, decide(text, payload), "%s: %s", payload, text)
	}
	require.Equal(t, Match, decide("payload == null", `{"n":9007199254740993} x`))
}

func TestAttributesAreTheSameInEachMode(t *testing.T) {
	structured := &Message{Attributes: true, ContentType: "application/cloudevents+json",
		Payload: []byte(
			`{"specversion":"1.0","subject":"a b \"ü\" 100%","sequence":1000000,"large":820982911946154508,"on":true,"datacontenttype":"text/plain","data":"x"}`)}
	binary := &Message{ContentType: "text/plain", Payload: []byte("x"),
		Headers: []byte(
			"ce-specversion:1.0\nce-subject:a%20b%20%22%C3%BC%22%20100%25\n" +
				"ce-sequence:1000000\nce-large:820982911946154508\nCE-On:true\n")}
	quoted := &Message{ContentType: "text/plain", Payload: []byte("x"),
		Headers: []byte("ce-specversion:1.0\nce-subject:\"a b \\\"\u00fc\\\" " +
			"100%\"\nce-sequence:1000000\nce-large:820982911946154508\nce-on:true\n")}
	text :=
		`headers['ce-subject'] == 'a b "ü" 100%' && headers['ce-sequence'] == '1000000' && headers['ce-large'] == '820982911946154508' && headers['ce-on'] == 'true' && headers['ce-datacontenttype'] == 'text/plain'`
	for i, m := range []*Message{structured, binary, quoted} {
		require.Equal(t, Match, Of(text).Decide(m), i)
	}
	other := &Message{Headers: []byte("x-a:a%20b\n")}
	require.Equal(t, Match, Of("headers['x-a'] == 'a%20b' && !('ce-datacontenttype' in headers)").Decide(other))
}
