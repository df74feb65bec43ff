package metadata

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/internal/model/problem"
)

func TestMetadataCarriesNamedHeadersAndNothingOfOurs(t *testing.T) {
	headers := map[string]string{"x-tenant": "T1", "traceparent": "00-a-b-01", "X-Broker-Consumer-Token": "forged",
		"Authorization": "secret", "Host": "h", "X-Key": "forged"}
	got, err := Collect([]byte("traceparent, x-tenant,absent,X-Broker-Consumer-Token,Authorization,Host,x-key,x-tenant"),
		"X-Key",
		func(name string) ([]byte, bool) { return []byte(headers[name]), headers[name] != "" })
	require.NoError(t, err)
	require.Equal(t, "traceparent:00-a-b-01\nx-tenant:T1\n", string(got))
}

func TestLinesOfOneHeaderAreCarriedAsOneValue(t *testing.T) {
	var h fasthttp.RequestHeader
	for _, line := range [][2]string{{"x-a", "1"}, {"X-A", "2"}, {"X-B", ""}, {"X-D", "3"}} {
		h.Add(line[0], line[1])
	}
	got, err := Collect([]byte("X-A, X-B, X-C"), "", Of(&h))
	require.NoError(t, err)
	require.Equal(t, "X-A:1, 2\nX-B:\n", string(got))
}

func TestMetadataIsBounded(t *testing.T) {
	long := func(string) ([]byte, bool) { return []byte(strings.Repeat("v", maxBytes)), true }
	_, err := Collect([]byte("a"), "", long)
	require.Equal(t, 400, problem.From(err).Status)
	_, err = Collect([]byte("not a token"), "", long)
	require.Equal(t, 400, problem.From(err).Status)
	var names []string
	for i := range MaxNames + 1 {
		names = append(names, "h"+strings.Repeat("x", i))
	}
	_, err = Collect([]byte(strings.Join(names, ",")), "", func(string) ([]byte, bool) { return []byte("v"), true })
	require.Equal(t, 400, problem.From(err).Status)
}

func FuzzMetadata(f *testing.F) {
	f.Add([]byte("traceparent,x-tenant"), []byte("v"))
	f.Add([]byte(",,a b,\n"), []byte("a\r\nX-Broker-Consumer-Token: forged"))
	f.Fuzz(func(t *testing.T, list, value []byte) {
		got, err := Collect(list, "X-Key", func(string) ([]byte, bool) { return value, true })
		if err != nil {
			return
		}
		for name, v := range Headers(got) {
			require.True(t, isToken(name))
			require.False(t, strings.ContainsFunc(v, func(r rune) bool { return r != '\t' && (r < ' ' || r == 0x7f) }), "%q", v)
			require.Equal(t, string(value), v)
			require.False(t, Reserved(name, "X-Key"))
		}
	})
}

func TestALineNamesHeadersThatAreNames(t *testing.T) {
	for _, name := range []string{"", "a,b", " a", "a\r\n", "a:b", "a b", "\u00e4", "a\x00", strings.Repeat("a", 257)} {
		_, err := Merge(nil, map[string]string{name: "v"}, "X-Key")
		require.Equal(t, 400, problem.From(err).Status, "%q", name)
	}
	for _, value := range []string{"a\r\nX-Evil: 1", "a\n", "\x00", "\x1b[2J", "\x7f", "a\x0bb"} {
		_, err := Merge(nil, map[string]string{"X-A": value}, "X-Key")
		require.Equal(t, 400, problem.From(err).Status, "%q", value)
	}
	got, err := Merge([]byte("X-A:1\n"), map[string]string{"x-a": "tab\tand \u00e4", "X-B": "2"}, "X-Key")
	require.NoError(t, err)
	require.Equal(t, "x-a:tab\tand \u00e4\nX-B:2\n", string(got), "a name is spelt as the line does")
}

// Metadata of a batch line never becomes a header that the line did not name.
func FuzzLineMetadata(f *testing.F) {
	f.Add("X-A", "v", "x-b:w\n")
	f.Add("a,b", "v\r\nX-Broker-Consumer-Token: forged", "")
	f.Add("X-Broker-Job-ID", "v", "x-a:1\nx-b:2\n")
	f.Fuzz(func(t *testing.T, name, value, stored string) {
		if _, err := Collect([]byte(stored), "", func(string) ([]byte, bool) { return []byte("v"), true }); err != nil {
			return
		}
		got, err := Merge(nil, map[string]string{name: value}, "X-Key")
		if err != nil {
			require.Equal(t, 400, problem.From(err).Status)
			return
		}
		n := 0
		for k, v := range Headers(got) {
			n++
			require.Equal(t, name, k)
			require.Equal(t, value, v)
		}
		require.LessOrEqual(t, n, 1)
		require.Equal(t, n, bytes.Count(got, []byte{'\n'}))
	})
}
