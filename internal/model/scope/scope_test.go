package scope_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/model/scope"
)

func TestScopesAreReadAndPrinted(t *testing.T) {
	words := []string{"channel:orders", "consumer:orders/billing", "dlq", "group:team", "management:read",
		"management:write"}
	set, err := scope.ParseSet([]string{"group:team", "management:write", "dlq", "channel:orders", "dlq",
		"consumer:orders/billing", "management:read"})
	require.NoError(t, err)
	require.Equal(t, words, set.Words(), "sorted, and none twice")
	again, err := scope.ParseSet(strings.Fields(set.String()))
	require.NoError(t, err)
	require.Equal(t, set, again)
}

func TestAWrongScopeIsRefusedWithTheOneThatWasMeant(t *testing.T) {
	for text, says := range map[string]string{
		"":                    "the scopes are management:read",
		"managment:read":      "did you mean management:read?",
		"management":          "did you mean management:read?",
		"chanel:orders":       "did you mean channel:?",
		"consumers:a/b":       "did you mean consumer:?",
		"DLQ":                 "did you mean dlq?",
		"group:":              "the ID of one group",
		"group:a/b":           "the ID of one group",
		"groups:a":            "did you mean group:?",
		"admin":               "the scopes are",
		"channel:":            "the ID of one channel",
		"channel:a b":         "the ID of one channel",
		"channel:a/b":         "the ID of one channel",
		"consumer:a":          "CHANNEL/CONSUMER",
		"consumer:a/b/c":      "CHANNEL/CONSUMER",
		"consumer:/b":         "CHANNEL/CONSUMER",
		"channel:orders\x00x": "the ID of one channel",
	} {
		_, err := scope.Parse(text)
		require.ErrorContains(t, err, says, text)
	}
	_, err := scope.Parse(strings.Repeat("x", 1<<20))
	require.Error(t, err)
	require.Less(t, len(err.Error()), 300, "an error repeats a bounded part")
	_, err = scope.ParseSet(nil)
	require.ErrorContains(t, err, "at least one")
	_, err = scope.ParseSet(make([]string, scope.Most+1))
	require.ErrorContains(t, err, "at most 20")
}

func TestEachScopeOpensWhatItSays(t *testing.T) {
	of := func(words ...string) scope.Set {
		set, err := scope.ParseSet(words)
		require.NoError(t, err)
		return set
	}
	read := scope.Demand{Door: scope.Management, Reads: true, Channel: "c"}
	change := scope.Demand{Door: scope.Management, Channel: "c"}
	own := scope.Demand{Door: scope.Owner, Channel: "c", Consumer: "k"}
	sole := scope.Demand{Door: scope.Sole, Channel: "c", Consumer: "k"}
	dead := scope.Demand{Door: scope.Owner, Dead: true, Channel: "c", Consumer: "k"}
	publish := scope.Demand{Door: scope.Publish, Channel: "c"}
	closed := scope.Demand{Channel: "c", Group: "g", Consumer: "k", Reads: true, Dead: true}
	for _, d := range []*scope.Demand{&read, &change, &own, &sole, &dead, &publish} {
		d.Group = "g"
	}
	for word, opened := range map[string][]bool{ // read, change, own, sole, dead, publish, closed
		"management:read":  {true, false, false, false, false, false, false},
		"management:write": {true, true, true, false, true, false, false},
		"channel:c":        {true, true, true, true, true, true, false},
		"channel:C":        {false, false, false, false, false, false, false},
		"group:g":          {true, true, true, true, true, true, false},
		"group:G":          {false, false, false, false, false, false, false},
		"consumer:c/k":     {false, false, true, true, true, false, false},
		"consumer:c/other": {false, false, false, false, false, false, false},
		"consumer:d/k":     {false, false, false, false, false, false, false},
		"dlq":              {false, false, false, false, true, false, false},
	} {
		for i, d := range []scope.Demand{read, change, own, sole, dead, publish, closed} {
			require.Equal(t, opened[i], of(word).Opens(d), "%s, demand %d", word, i)
		}
	}
	require.True(t, of("dlq", "management:read").Opens(dead), "one of several is enough")
	require.True(t, of("consumer:c/k").StandsForChannel(scope.Place{Channel: "c", Consumer: "k"}))
	require.False(t, of("consumer:c/k").StandsForChannel(scope.Place{Channel: "c"}), "a producer does not publish with it")
	require.False(t, of("channel:c").StandsForConsumer(scope.Place{}))
	require.False(t, of("group:g").Opens(scope.Demand{Door: scope.Management, Channel: "c"}), "it carries no group")
	require.False(t, of("group:g").Opens(scope.Demand{Door: scope.Management, Group: "g"}), "a group is no channel")
	require.True(t, of("management:read").ReadsOnly())
	require.False(t, of("management:read", "dlq").ReadsOnly())
}
