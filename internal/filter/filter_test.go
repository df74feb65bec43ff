package filter

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func example() *Message {
	return &Message{Payload: []byte(`{"a":1,"s":"aaa","l":[3,4],"t":true,"n":null}`), Headers: []byte("X-A:y\n"), Priority: 4,
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
	require.Equal(t, Match, Of("headers['ce-type'] == 'sold' && headers['ce-sequence'] == '3' && !('ce-data' in headers)").Decide(m))
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
	large := `{"s":"` + strings.Repeat("ab", 1<<18) + `","d":` + strings.Repeat(`{"a":[`, 3000) + "1" + strings.Repeat(`]}`, 3000) +
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
	payload := []byte(`{"id":"abc","total":150.5,"items":[{"sku":"a","n":1},{"sku":"b","n":2}],"customer":{"name":"x","vip":true}}`)
	for name, text := range map[string]string{"headers": "priority > 3 && headers['x-a'] == 'y'", "payload": "payload.total >= 100 && payload.customer.vip"} {
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
