// Package prometheus tests the rules of this folder with Prometheus' own tool.
package prometheus

import (
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRealPromtoolTakesTheRulesAndTheirTests(t *testing.T) {
	tool, err := exec.LookPath("promtool")
	if err != nil {
		tool = "../../bin/promtool" // where scripts/servers.sh puts it
	}
	for verb, file := range map[string]string{"check": "penstock.rules.yml", "test": "penstock.rules.test.yml"} {
		out, err := exec.Command(tool, verb, "rules", file).CombinedOutput()
		require.NoError(t, err, "%s: scripts/servers.sh installs promtool", out)
	}
}
