package bulk

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/model/apitype"
	"github.com/penstock-broker/penstock/internal/model/problem"
	"github.com/penstock-broker/penstock/internal/tool/share"
)

// rowsOf returns the rows of a body, each with the position behind it. A row that is too long is
// "LONG".
func rowsOf(t testing.TB, body io.Reader, csv bool, at int64, most int) (rows []string, ends []int64) {
	t.Helper()
	bound := share.New(share.Options{Most: 1 << 30})
	r := newRowReader(body, csv, at, most)
	r.room, r.key = bound, share.Producer(1)
	for {
		row, err := r.next(context.Background())
		if errors.Is(err, io.EOF) {
			r.release()
			require.Zero(t, bound.Taken())
			return rows, ends
		}
		if errors.Is(err, errRowTooLong) {
			row, err = []byte("LONG"), nil
		}
		require.NoError(t, err)
		rows, ends = append(rows, string(row)), append(ends, r.at)
	}
}

func TestRowsOfABody(t *testing.T) {
	long := strings.Repeat("x", 200_000)
	for _, c := range []struct {
		csv  bool
		body string
		want []string
	}{
		{false, "", nil},
		{false, "\n \n\t\r\n", nil},
		{false, "a\nb\r\n\nc", []string{"a", "b", "c"}},
		{false, "\xEF\xBB\xBFa\n\xEF\xBB\xBFb", []string{"a", "\xEF\xBB\xBFb"}},
		{false, "a\"\nb\"\n", []string{"a\"", "b\""}},
		{false, "a\n" + long + "\nb\n", []string{"a", long, "b"}},
		{false, "a\n" + long + "yy\nb\n", []string{"a", "LONG", "b"}},
		{false, long + "yyy", []string{"LONG"}},
		{true, "", nil},
		{true, "\xEF\xBB\xBF\"a\nb\",c\r\nd", []string{"\"a\nb\",c", "d"}},
		{true, "\r\n\na,\"\"\n\"\"\"\n\"\n", []string{"a,\"\"", "\"\"\"\n\""}},
		{true, "a\"b\nc\n", []string{"a\"b", "c"}},
		{true, "\"a\"b\nc\n", []string{"\"a\"b", "c"}},
		{true, "\"never closed\na\nb", []string{"\"never closed\na\nb"}},
		{true, " \n,\n", []string{" ", ","}},
		{true, "\"" + long + "yy\n\",x\nb", []string{"LONG", "b"}},
	} {
		for name, body := range map[string]io.Reader{"whole": strings.NewReader(c.body),
			"bytes": iotest.OneByteReader(strings.NewReader(c.body))} {
			rows, ends := rowsOf(t, body, c.csv, 0, 200_000)
			require.Equal(t, c.want, rows, "%s %.40q", name, c.body)
			counted := counter{end: rowEnd{csv: c.csv}}
			counted.add([]byte(strings.TrimPrefix(c.body, string(bom))))
			n := counted.total()
			if c.csv {
				require.Equal(t, int64(max(0, len(rows)-1)), n, "%.40q", c.body)
			} else {
				require.Equal(t, int64(len(rows)), n, "%.40q", c.body)
			}
			for i, end := range ends { // each end is a place to begin at
				rest, _ := rowsOf(t, strings.NewReader(c.body[end:]), c.csv, end, 200_000)
				require.Equal(t, len(rows)-i-1, len(rest))
			}
		}
	}
}

func TestARowReaderWaitsForMemory(t *testing.T) {
	bound := share.New(share.Options{Most: 100 << 10})
	r := newRowReader(strings.NewReader(strings.Repeat("x", 300_000)), false, 0, 400_000)
	r.room, r.key = bound, share.Producer(1)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := r.next(ctx)
	require.ErrorIs(t, err, context.Canceled)
	r.release()
	require.Zero(t, bound.Taken())
}

func TestCellsOfRecords(t *testing.T) {
	var p recordParser
	for i, c := range []struct {
		record string
		want   []string // nil: refused
	}{
		{`a,b`, []string{"a", "b"}},
		{`"a""b",`, []string{`a"b`, ""}},
		{"\"a\r\nb\nc\",d", []string{"a\r\nb\nc", "d"}},
		{`a"b`, nil},
		{`"a"b,c`, nil},
		{`"never closed`, nil},
		{"\"never closed\nx", nil},
		{` "a" `, nil},
		{` a `, []string{" a "}},
		{"\x00,\xff", []string{"\x00", "\xff"}},
		{`last`, []string{"last"}},
	} {
		got, err := p.cells([]byte(c.record))
		if c.want == nil {
			require.Error(t, err, i)
			continue
		}
		require.NoError(t, err, "%d %q", i, c.record)
		require.Equal(t, c.want, got)
	}
}

// A record that is written by the rules is read as it was, whatever its cells contain, and no body
// makes a reader panic or lose its position.
func FuzzRows(f *testing.F) {
	f.Add("a,b\n\"c\"\"\nd\",e\r\n", "x", "y\"\r\n,")
	f.Add("\xEF\xBB\xBF\"", "\n", "")
	f.Fuzz(func(t *testing.T, body, one, two string) {
		for _, csv := range []bool{false, true} {
			_, ends := rowsOf(t, strings.NewReader(body), csv, 0, 50)
			for i := 1; i < len(ends); i++ {
				require.Less(t, ends[i-1], ends[i])
			}
			if len(ends) > 0 {
				require.LessOrEqual(t, ends[len(ends)-1], int64(len(body)))
			}
		}
		quote := func(s string) string { return `"` + strings.ReplaceAll(s, `"`, `""`) + `"` }
		rows, _ := rowsOf(t, strings.NewReader(quote(one)+","+quote(two)+"\r\nnext"), true, 0, 1<<20)
		require.Len(t, rows, 2)
		var p recordParser
		cells, err := p.cells([]byte(rows[0]))
		require.NoError(t, err)
		require.Equal(t, []string{one, two}, cells)
	})
}

func TestTemplatesAreFilled(t *testing.T) {
	c, err := compile(&apitype.BulkTemplate{Payload: "<{{a}}> {{ json a }} {{json b}} {{json x}}", MessageID: "m",
		Headers: map[string]string{"X-A": "{{a}}"}})
	require.NoError(t, err)
	require.NoError(t, c.check([]string{"a", "b", "json x"}))
	require.Error(t, c.check([]string{"a", "b"}))
	got, err := c.fill(map[string]cell{"a": {text: "&\"\n"}, "b": {text: `[1]`, json: true}, "json x": {text: "plain"}},
		1000)
	require.NoError(t, err)
	require.Equal(t, []string{"Payload", "MessageID", "Header:X-A"}, c.names)
	require.Equal(t, []string{"<&\"\n> \"&\\\"\\n\" [1] plain", "m", "&\"\n"}, got)
	_, err = c.fill(map[string]cell{"a": {}}, 1000)
	require.ErrorContains(t, err, "json b")
	_, err = c.fill(map[string]cell{"a": {text: strings.Repeat("x", 600)}, "b": {}, "json x": {}}, 1000)
	require.ErrorContains(t, err, "larger")
	_, err = c.fill(map[string]cell{"a": {text: "\xff"}, "b": {}, "json x": {}}, 1000)
	require.ErrorContains(t, err, "UTF-8")
	_, err = compile(&apitype.BulkTemplate{Payload: "{{a"})
	require.ErrorContains(t, err, "Template.Payload")
	for _, text := range []string{"{}", "}}", "{ {a} }", "{{{a}}}", ""} {
		c, err := compile(&apitype.BulkTemplate{Payload: text})
		require.NoError(t, err, text)
		_, _ = c.fill(map[string]cell{"a": {text: "1"}}, 100)
	}
}

func TestObjectsAreCells(t *testing.T) {
	row, err := object([]byte(`{"s":"a\u0022","n":1.50,"o":{"x":[1]},"b":true,"z":null}`))
	require.NoError(t, err)
	require.Equal(t, map[string]cell{"s": {text: `a"`}, "n": {"1.50", true}, "o": {`{"x":[1]}`, true}, "b": {"true", true},
		"z": {}}, row)
	for _, text := range []string{"", "null", "[]", `"x"`, "{", "{} x", `{"a":01}`, `{"a":"\x"}`} {
		_, err := object([]byte(text))
		require.Equal(t, errNoRow, err, text)
	}
	for text, want := range map[string]string{
		`{"a":1,"b":2,"\u0061":3}`: `The row has the member "a" twice.`,
		`{"a":"\ud800"}`:           "The row has half of a surrogate pair",
		`{"a":{"b":["\udc00"]}}`:   "The row has half of a surrogate pair",
		`{"\ud800":1}`:             "The row has half of a surrogate pair",
		"{\"a\":\"\xff\"}":         "The row is not UTF-8.",
		"{\"\xff\":1}":             "The row is not UTF-8.",
		`{"a":` + strings.Repeat("[", 10_001) + strings.Repeat("]", 10_001) + "}": errNoRow.Detail,
	} {
		_, err := object([]byte(text))
		require.ErrorContains(t, err, want)
	}
}

// The cells of a row are what encoding/json reads of its members.
func FuzzObject(f *testing.F) {
	for _, text := range []string{`{"s":"a\u0022","n":1.50,"o":{"x":[1]},"b":true,"z":null}`, `{"a":1,"a":2}`, `{"a":"\ud800"}`,
		"{\"\xff\":1}", `{"a":[{}]}x`, `{"":""}`} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		row, err := object(line)
		if err != nil {
			require.Equal(t, 400, problem.From(err).Status)
			return
		}
		require.True(t, utf8.Valid(line))
		var want map[string]json.RawMessage
		require.NoError(t, json.Unmarshal(line, &want))
		require.Len(t, row, len(want))
		for name, value := range want {
			got, has := row[name]
			require.True(t, has, name)
			var text *string
			switch err := json.Unmarshal(value, &text); {
			case string(value) == "null":
				require.Equal(t, cell{}, got)
			case err == nil:
				require.Equal(t, cell{text: *text}, got)
			default:
				require.Equal(t, cell{string(value), true}, got)
			}
		}
	})
}

func TestRates(t *testing.T) {
	for text, want := range map[string][2]any{"": {128, "0s"}, "2000/1s": {128, "64ms"}, "100/1s": {25, "250ms"},
		"1/1h": {1, "1h0m0s"}, "1000000/100ms": {128, "12.8µs"}} {
		rate, err := rateOf(&apitype.BulkRequest{Rate: text})
		require.NoError(t, err)
		n, wait := perStep(rate, stepRows)
		require.Equal(t, want, [2]any{n, fmt.Sprint(wait(n))}, text)
	}
}

// A body that is compressed, or an archive, is no CSV with the right columns.
func TestAHeaderOfAnArchiveIsRefused(t *testing.T) {
	for _, line := range []string{"PK\x03\x04\x14", "\x1f\x8b\x08\x00", "Payload,\xff", "Payload,,", "Payload,Headers",
		"Payload,Header:", "payload"} {
		_, err := checkHeader([]byte(line), nil)
		require.Error(t, err, "%q", line)
	}
	columns, err := checkHeader([]byte("MessageID,Payload,Header:X"), nil)
	require.NoError(t, err)
	require.Equal(t, []string{"MessageID", "Payload", "Header:X"}, columns)
}

// A bulk leaves the store to clients, and pauses for nobody.
func TestABulkPausesForClients(t *testing.T) {
	require.Zero(t, courtesy(0, time.Second))
	require.Equal(t, 20*time.Millisecond, courtesy(1, 10*time.Millisecond))
	require.Equal(t, 250*time.Millisecond, courtesy(9, time.Second))
}

func BenchmarkObject(b *testing.B) {
	line := []byte(`{"name":"Ada","mail":"ada@example.com","amount":3.50,"tags":["a","b"],"note":"\"soon\"\n"}`)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := object(line); err != nil {
			b.Fatal(err)
		}
	}
}
