package problem

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestNearestNamesWhatWasProbablyMeant(t *testing.T) {
	known := []string{"ID", "Limit", "Wait", "Timeout", "NextState", "IncrementalTimeout"}
	for name, want := range map[string]string{
		"Limt": "Limit", "limits": "Limit", "LIMIT": "Limit", "Time-out": "Timeout", "wiat": "Wait", "waits": "Wait",
		"State": "NextState", "id": "ID", "Incremental": "IncrementalTimeout",
		"": "", "x": "", "é": "", "Priority": "", "\x00\xff": "", strings.Repeat("limit", 10_000): "",
	} {
		require.Equal(t, want, Nearest(name, known), name)
	}
	require.Empty(t, Nearest("Limit", nil))
}

func TestEditsAreCounted(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"a", "", 1}, {"", "ab", 2}, {"token", "token", 0}, {"tokn", "token", 1}, {"tokne", "token", 2},
		{"kitten", "sitting", 3}} {
		require.Equal(t, c.want, edits(c.a, c.b))
		require.Equal(t, c.want, edits(c.b, c.a))
	}
}
