package auditlog_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/model/auditlog"
)

// chain returns n entries that are one chain.
func chain(n int) []auditlog.Entry {
	all := make([]auditlog.Entry, n)
	var last auditlog.Hash
	for i := range all {
		all[i] = auditlog.Entry{No: uint64(i + 1), AtMs: int64(1000 + i), Who: "admin token", From: "192.0.2.1",
			Action: "put channel", Resource: "/channel/c", Before: []byte(`{"Name":"a"}`), After: []byte(`{"Name":"b"}`)}
		all[i].Hash = all[i].HashAfter(last)
		last = all[i].Hash
	}
	return all
}

// broken returns the number of the first entry that is not of the chain, 0 for none.
func broken(t *testing.T, all []auditlog.Entry) uint64 {
	t.Helper()
	var v auditlog.Verifier
	for i := range all {
		if err := v.Next(&all[i]); err != nil {
			var at *auditlog.Break
			require.ErrorAs(t, err, &at)
			require.NotEmpty(t, at.Error())
			return at.No
		}
	}
	return 0
}

func TestEachChangeOfAnEntryIsFound(t *testing.T) {
	require.Zero(t, broken(t, chain(5)))
	for name, change := range map[string]func(e *auditlog.Entry){
		"time":     func(e *auditlog.Entry) { e.AtMs++ },
		"who":      func(e *auditlog.Entry) { e.Who = "somebody" },
		"from":     func(e *auditlog.Entry) { e.From = "" },
		"action":   func(e *auditlog.Entry) { e.Action = "get channel" },
		"resource": func(e *auditlog.Entry) { e.Resource += "x" },
		"before":   func(e *auditlog.Entry) { e.Before = nil },
		"after":    func(e *auditlog.Entry) { e.After[9] = 'c' },
		"hash":     func(e *auditlog.Entry) { e.Hash[0]++ },
		"a border": func(e *auditlog.Entry) { e.Who, e.From = e.Who+e.From[:1], e.From[1:] },
		"rehashed": func(e *auditlog.Entry) { e.Who = "somebody"; e.Hash = e.HashAfter(auditlog.Hash{}) },
	} {
		all := chain(5)
		change(&all[2])
		require.Equal(t, uint64(3), broken(t, all), name)
	}
	all := chain(5)
	require.Equal(t, uint64(3), broken(t, append(all[:2], all[3:]...)), "one is missing")
	all = chain(5)
	all[1], all[2] = all[2], all[1]
	require.Equal(t, uint64(2), broken(t, all), "two are exchanged")
	all = chain(5)
	require.Equal(t, uint64(1), broken(t, all[1:]), "the first is missing")
	// One that makes the hashes anew changes those of all later ones.
	all = chain(3)
	all[0].Who = "somebody"
	all[0].Hash = all[0].HashAfter(auditlog.Hash{})
	require.Equal(t, uint64(2), broken(t, all))
}

func TestFingerprints(t *testing.T) {
	one, two := auditlog.Printer{Key: []byte("one")}, auditlog.Printer{Key: []byte("two")}
	require.Equal(t, one.Print("secret"), one.Print("secret"))
	require.NotEqual(t, one.Print("secret"), one.Print("other"))
	require.NotEqual(t, one.Print("secret"), two.Print("secret"))
	require.Empty(t, one.Print(""))
	require.NotContains(t, one.Print("secret"), "secret")
}

func TestWhatAnEntryShowsIsBounded(t *testing.T) {
	require.Nil(t, auditlog.JSON(nil))
	require.JSONEq(t, `{"A":1}`, string(auditlog.JSON(map[string]int{"A": 1})))
	for _, text := range []string{strings.Repeat("a", 65_534), strings.Repeat("a", 65_535),
		strings.Repeat("\u20ac", 1<<20), strings.Repeat("\x00\"\\<", 1<<20)} {
		got := auditlog.JSON(text)
		require.LessOrEqual(t, len(got), auditlog.MostBytes)
		require.True(t, json.Valid(got))
		if len(text) > 65_534 {
			var cut struct {
				Cut    bool
				Bytes  int
				SHA256 string
				Begin  string
			}
			require.NoError(t, json.Unmarshal(got, &cut))
			whole, err := json.Marshal(text)
			require.NoError(t, err)
			require.True(t, cut.Cut)
			require.Equal(t, len(whole), cut.Bytes)
			require.Len(t, cut.SHA256, 64)
			require.True(t, strings.HasPrefix(string(whole), cut.Begin))
			require.Greater(t, len(cut.Begin), 2000)
		}
	}
}
