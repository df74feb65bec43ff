package shape

import (
	"go/parser"
	"go/token"
	"path"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The command line is a client. What a broker runs knows neither it nor the libraries that it alone needs.
func TestTheCommandLineWeighsNothingOnABrokerThatRuns(t *testing.T) {
	seen := map[string]bool{}
	for name, src := range production(t) {
		file, err := parser.ParseFile(token.NewFileSet(), name, src, parser.ImportsOnly)
		require.NoError(t, err)
		for _, spec := range file.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			require.NoError(t, err)
			switch {
			case imported == module+"internal/feature/ctl":
				require.Equal(t, "cmd/broker/ctl.go", name)
				seen[imported] = true
			case strings.HasPrefix(imported, "github.com/spf13/"), strings.HasPrefix(imported, "go.yaml.in/"):
				require.Equal(t, "internal/feature/ctl", path.Dir(name))
				seen[imported] = true
			}
		}
	}
	require.Contains(t, seen, module+"internal/feature/ctl")
	require.Contains(t, seen, "github.com/spf13/cobra")
	require.Contains(t, seen, "go.yaml.in/yaml/v3")
	for own := range linkedBy(t, "linux", "internal/feature/ctl") {
		require.NotContains(t, []string{"api", "durable", "redisq"}, own, "the command line speaks HTTP")
	}
}
