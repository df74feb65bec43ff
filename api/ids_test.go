package api

import (
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/model/problem"
)

func TestIDsAreOneTo255BytesOfTheAlphabet(t *testing.T) {
	for _, id := range []string{"a", "A-z_0.9~:@", "...", ".a", strings.Repeat("x", 255), "select", "null", "-", "~"} {
		require.True(t, ident.ValidName(id), "%q", id)
	}
	for _, id := range []string{"", ".", "..", strings.Repeat("x", 256), "a b", "a/b", "a%b", "ä", "a\x00", "a\n", "a+b",
		"a'b", "a?b", "a#b", "a;b", `a\b`, "{a}"} {
		require.False(t, ident.ValidName(id), "%q", id)
	}
}

func TestPathIDsAreDecodedOnceAndThenChecked(t *testing.T) {
	for raw, want := range map[string]string{"plain": "plain", "%61b": "ab", "a%2Db": "a-b", "%40": "@"} {
		id, err := decodePathID("producer", raw)
		require.NoError(t, err)
		require.Equal(t, want, id)
	}
	for _, raw := range []string{"", "%", "%2", "%zz", "a%2Fb", "a%2fb", "%2E%2E", "%2e", "..", "%00", "%2561", "a%20b",
		"%C3%A4", "\xff", "a+b"} {
		_, err := decodePathID("producer", raw)
		var p *problem.Problem
		require.ErrorAs(t, err, &p, "%q", raw)
		require.Equal(t, 400, p.Status)
		require.Equal(t, "invalid_id", p.Code)
	}
}

func FuzzPathID(f *testing.F) {
	for _, s := range []string{"a", "%61", "%2F", "..", "%00", "%", "' OR 1=1", "%25"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		id, err := decodePathID("x", raw)
		if err != nil {
			return
		}
		require.True(t, ident.ValidName(id))
		back, err := url.Parse("/producer/" + id)
		require.NoError(t, err)
		require.Equal(t, "/producer/"+id, back.Path, "a link to an ID needs no escaping")
	})
}
