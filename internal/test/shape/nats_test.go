package shape

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The sender of NATS, and the library that it alone needs, are in builds with its tag and in no other.
func TestOnlyABuildWithItsTagLinksNATS(t *testing.T) {
	deps := func(args ...string) (of []string) {
		cmd := exec.Command("go", append(append([]string{"list", "-deps"}, args...), "./cmd/broker")...)
		cmd.Dir = root
		out, err := cmd.Output()
		require.NoError(t, err)
		for name := range strings.FieldsSeq(string(out)) {
			if strings.Contains(name, "nats") || strings.Contains(name, "nkeys") {
				of = append(of, name)
			}
		}
		return of
	}
	require.Empty(t, deps())
	require.ElementsMatch(t, []string{"github.com/nats-io/nkeys", module + "internal/feature/nats"},
		deps("-tags", "nats"))
}
