package jsonread

import (
	"encoding/json"
	"errors"
	"runtime"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

// members reads an object of strings.
func members(text string) (got map[string]string, err error) {
	r := Open([]byte(text))
	defer r.Close()
	got = map[string]string{}
	err = r.Object(func(name []byte) error {
		value, err := r.Text()
		got[string(name)] = string(value)
		return err
	})
	if err == nil {
		err = r.End()
	}
	return got, err
}

func TestWhatReadersReadDifferentlyIsRefused(t *testing.T) {
	got, err := members(` { "a" : "\u0062\ud83d\ude00\n" , "\u0062":"" , "ä<&>":"\\ud800" } `)
	require.NoError(t, err)
	require.Equal(t, map[string]string{"a": "b😀\n", "b": "", "ä<&>": `\ud800`}, got)
	for text, want := range map[string]error{
		`{"a":"\ud800"}`: ErrSurrogate, `{"a":"\ude00\ud83d"}`: ErrSurrogate, `{"\udfff":"a"}`: ErrSurrogate,
		`{"a":"\ud83d\u0041"}`: ErrSurrogate, `{"a":"\ud83dx"}`: ErrSurrogate,
		"{\"a\":\"\xff\"}": ErrUTF8, "{\"\xc0\x80\":\"a\"}": ErrUTF8, "{\"a\":\"\xed\xa0\x80\"}": ErrUTF8,
		"": ErrForm, " ": ErrForm, "{": ErrForm, `{"a"`: ErrForm, `{"a":`: ErrForm, `{"a":"b"`: ErrForm,
		`{"a":"b",}`: ErrForm, `{,}`: ErrForm, `{"a":"b"}}`: ErrForm, `{"a":"b"} {}`: ErrForm, `{"a":"b"}x`: ErrForm,
		`{"a":1}`: ErrForm, `{"a":null}`: ErrForm, `{"a":}`: ErrForm, `{1:"a"}`: ErrForm, `{{}:"a"}`: ErrForm,
		`[]`: ErrForm, `null`: ErrForm, `"a"`: ErrForm, `{"a":"\x"}`: ErrForm, "{\"a\":\"\n\"}": ErrForm, `{'a':"b"}`: ErrForm,
		`{"a" "b"}`: ErrForm, `{"a":"b"]`: ErrForm,
	} {
		_, err := members(text)
		require.ErrorIs(t, err, want, text)
	}
}

func TestValuesHaveTheirTypes(t *testing.T) {
	read := func(text string, f func(r *Reader) error) error {
		r := Open([]byte(text))
		defer r.Close()
		if err := f(r); err != nil {
			return err
		}
		return r.End()
	}
	var n int64
	integer := func(r *Reader) (err error) { n, err = r.Int(); return err }
	for text, want := range map[string]int64{"0": 0, "-7": -7, " 9223372036854775807 ": 1<<63 - 1} {
		require.NoError(t, read(text, integer))
		require.Equal(t, want, n)
	}
	for _, text := range []string{"1.0", "1e3", "9223372036854775808", "01", "+1", `"1"`, "null", "true", "[1]", "-", ""} {
		require.ErrorIs(t, read(text, integer), ErrForm, text)
	}
	var b bool
	boolean := func(r *Reader) (err error) { b, err = r.Bool(); return err }
	require.NoError(t, read("true", boolean))
	require.True(t, b)
	require.NoError(t, read(" false", boolean))
	require.False(t, b)
	for _, text := range []string{"tru", "True", "1", "null", `"true"`, "truex"} {
		require.ErrorIs(t, read(text, boolean), ErrForm, text)
	}
	var list []string
	texts := func(r *Reader) error {
		list = nil
		return r.Array(func() error {
			if r.Null() {
				list = append(list, "null")
				return nil
			}
			value, err := r.Value()
			list = append(list, string(value))
			return err
		})
	}
	require.NoError(t, read(`[ 1.50 , null,{"a":[]},"b"]`, texts))
	require.Equal(t, []string{"1.50", "null", `{"a":[]}`, `"b"`}, list)
	for _, text := range []string{"[", "[1", "[1,", "[1,]", "[,]", "[1 2]", "[nul]", "[}", "{}", "[1}"} {
		require.ErrorIs(t, read(text, texts), ErrForm, text)
	}
}

// A value that is only carried may have anything in its strings. What is taken of it may not.
func TestCarriedValuesAreCheckedWhereTheyAreTaken(t *testing.T) {
	r := OpenCarried([]byte(`["\ud800","\ud800"]`))
	defer r.Close()
	require.ErrorIs(t, r.Array(func() error {
		value, err := r.Value()
		require.NoError(t, err)
		require.Equal(t, `"\ud800"`, string(value))
		_, err = r.Text()
		return err
	}), ErrSurrogate)
}

func TestCheckFindsNamesThatOccurTwice(t *testing.T) {
	for _, text := range []string{`{}`, `1`, `[{"a":1},{"a":1}]`, `{"a":{"a":{"a":[]}}}`, ` "x" `} {
		require.NoError(t, Check([]byte(text)), text)
	}
	for text, want := range map[string]string{
		`{"a":1,"a":1}`:                                   `has the member "a" twice`,
		`{"a":1,"\u0061":1}`:                              `has the member "a" twice`,
		`{"Rate":1,"rAte":1}`:                             `has the member "rAte" twice`,
		`{"size":1,"\u017fize":1}`:                        `has the member "\u017fize" twice`,
		`{"k":1,"\u212a":1}`:                              `has the member "\u212a" twice`,
		`{"a":{"b":1},"c":[{"b":1}],"d":{"b":[],"B":{}}}`: `has the member "B" twice`,
		`{"x":[{"b/~":1,"b/~":1}]}`:                       `has the member "b/~" twice`,
		`{"ä":1,"ä":1}`:                                   `has the member "\u00e4" twice`,
		`{"a":"\ud800"}`:                                  ErrSurrogate.Reason,
		"\xff":                                            ErrUTF8.Reason,
		strings.Repeat("[", mostDepth+1):                  errLarge.Reason,
		``:                                                "",
		`{} {}`:                                           "",
		`{}}`:                                             "",
		`{`:                                               "",
		`{"a":1,"` + strings.Repeat("x", 99):              "",
	} {
		err := Check([]byte(text))
		require.Error(t, err, text)
		require.Equal(t, want, Reason(err), text)
	}
	long := strings.Repeat("n", 10_000)
	require.Less(t, len(Reason(Check([]byte(`{"`+long+`":1,"`+long+`":2}`)))), 200)
}

// Texts of a few megabytes with as many values, names or levels as they can hold.
func TestAHostileTextCostsNoMemory(t *testing.T) {
	const size = 8 << 20
	for name, text := range map[string]string{
		"values":   "[" + strings.Repeat("0,", size/2) + "0]",
		"brackets": strings.Repeat("[", size),
		"objects":  strings.Repeat(`{"a":`, size/5),
		"members":  "{" + strings.Repeat(`"a":0,`, size/6) + `"a":0}`,
		"escapes":  `"` + strings.Repeat(`\"`, size/2) + `"`,
		"halves":   `["` + strings.Repeat(`\ud800`, size/6) + `"]`,
	} {
		b := []byte(text)
		for form, read := range map[string]func() error{
			"value":   func() error { r := Open(b); defer r.Close(); _, err := r.Value(); return err },
			"carried": func() error { r := OpenCarried(b); defer r.Close(); _, err := r.Value(); return err },
			"check":   func() error { return Check(b) },
		} {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_ = read()
			runtime.ReadMemStats(&after)
			require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(4<<20), "%s %s", name, form)
		}
	}
}

func TestAReaderAllocatesNothing(t *testing.T) {
	text := []byte(`{"Limit":100,"Wait":"20s","Deep":[{"a":null}]}`)
	least := 1000.0
	for range 100 { // the race detector makes pools forget: not every run counts
		least = min(least, testing.AllocsPerRun(1, func() {
			r := Open(text)
			defer r.Close()
			require.True(t, r.Object(func([]byte) error { _, err := r.Value(); return err }) == nil && r.End() == nil)
		}))
	}
	require.Zero(t, least)
}

// What is accepted is JSON, and its strings are those that encoding/json reads.
func FuzzReader(f *testing.F) {
	for _, text := range []string{`{"a":"b"}`, `{"a":"\ud83d\ude00"}`, `{"a":"\ud800"}`, "{\"\xff\":\"\"}", `{"a":"b","a":"c"}`,
		`{"a":{}}`, `[[[[`, `{"a":"\""} `, "{\"a\":\"\\u00e4<&>\x7f\"}"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, err := members(text)
		checked := Check([]byte(text))
		if err != nil {
			var wrong *Error
			require.True(t, errors.As(err, &wrong))
			require.False(t, errors.Is(err, ErrUTF8) && utf8.ValidString(text))
			return
		}
		require.True(t, utf8.ValidString(text) && json.Valid([]byte(text)))
		var want map[string]string
		require.NoError(t, json.Unmarshal([]byte(text), &want))
		require.Equal(t, want, got)
		for _, value := range got {
			require.True(t, utf8.ValidString(value))
		}
		if checked == nil {
			require.Len(t, got, countNames(t, text))
		}
	})
}

// countNames counts the names of an object of strings.
func countNames(t *testing.T, text string) (n int) {
	d := json.NewDecoder(strings.NewReader(text))
	for i := 0; d.More() || i == 0; i++ {
		_, err := d.Token()
		require.NoError(t, err)
		n += i % 2
	}
	return n
}
