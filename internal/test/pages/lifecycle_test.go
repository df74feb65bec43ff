package pages

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/test/lifecycle"
)

// The page of lifecycles has the table that the tests check, line by line.
func TestTheLifecyclePageHasTheTableThatIsTested(t *testing.T) {
	var got []lifecycle.Row
	for _, line := range between(t, read(t, "docs/explain/lifecycle.md"), "lifecycle") {
		c := cells(line)
		require.Len(t, c, 3, line)
		got = append(got, lifecycle.Row{Event: c[0], Part: c[1], Promise: c[2]})
	}
	require.Equal(t, lifecycle.Table, got)
}
