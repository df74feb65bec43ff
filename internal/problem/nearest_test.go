package problem

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestNearestNamesWhatWasProbablyMeant(t *testing.T) {
	known := []string{"ID", "Limit", "Wait", "Timeout", "NextState", "IncrementalTimeout"}
	for name, want := range map[string]string{
		"Limt": "Limit", "limits": "Limit", "LIMIT": "Limit", "Time-out": "Timeout", "wiat": "Wait", "waits": "Wait", "State": "NextState", "id": "ID", "Incremental": "IncrementalTimeout",
		"": "", "x": "", "é": "", "Priority": "", "\x00\xff": "", strings.Repeat("limit", 10_000): "",
	} {
		require.Equal(t, want, Nearest(name, known), name)
	}
	require.Empty(t, Nearest("Limit", nil))
}
