package main

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTheBoardIsWhatItsCodeMakes(t *testing.T) {
	committed, err := os.ReadFile("penstock.json")
	require.NoError(t, err)
	require.Equal(t, string(committed), string(render()), "make board writes it")
}

// Prometheus' own parser reads each expression, as one of a rule.
func TestRealPromtoolParsesTheExpressionsOfTheBoard(t *testing.T) {
	tool, err := exec.LookPath("promtool")
	if err != nil {
		tool = "../../bin/promtool" // where scripts/servers.sh puts it
	}
	var rules strings.Builder
	rules.WriteString("groups: [{name: board, rules: [\n")
	for _, r := range rows {
		for _, c := range r.charts {
			require.NotEmpty(t, c.queries, c.title)
			for _, q := range c.queries {
				expr := strings.NewReplacer("$__rate_interval", "5m", "'", "''").Replace(q.expr)
				rules.WriteString("{record: 'a:b" + strings.Repeat("x", rules.Len()%97) + "', expr: '" + expr + "'},\n")
			}
		}
	}
	rules.WriteString("]}]\n")
	file := t.TempDir() + "/board.yml"
	require.NoError(t, os.WriteFile(file, []byte(rules.String()), 0o600))
	out, err := exec.Command(tool, "check", "rules", "--lint=none", file).CombinedOutput()
	require.NoError(t, err, "%s: scripts/servers.sh installs promtool", out)
}
