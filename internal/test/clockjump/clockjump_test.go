package clockjump

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A clock that does not jump would let every test of it pass.
func TestALibraryThatReadsTheClockOtherwiseIsRefused(t *testing.T) {
	_, err := patch("func Now() Time { return somehow() }")
	require.ErrorContains(t, err, "reads the clock in 0 places")
	_, err = patch(reading + reading)
	require.ErrorContains(t, err, "reads the clock in 2 places")
	patched, err := patch("a\n" + reading + "b\n")
	require.NoError(t, err)
	require.Equal(t, "a\n"+jumping+"b\n", patched)
}
