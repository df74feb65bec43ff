package deployment

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const root = "../../.."

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, name))
	require.NoError(t, err)
	return string(text)
}

// settings returns the names of all settings, and whether each is a secret. A test of the program compares the pages
// with the program.
func settings(t *testing.T) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	pages, err := filepath.Glob(filepath.Join(root, "docs/settings/*.md"))
	require.NoError(t, err)
	for _, page := range pages {
		for _, row := range regexp.MustCompile("(?m)^\\| `(BROKER_[A-Z0-9_]+)` \\|(.*)\\|$").
			FindAllStringSubmatch(read(t, "docs/settings/"+filepath.Base(page)), -1) {
			names[row[1]] = strings.Contains(row[2], " Secret.")
		}
	}
	require.Greater(t, len(names), 50)
	return names
}

// known reports whether a broker takes a variable of that name. Those without the prefix belong to libraries.
func known(names map[string]bool, name string) bool {
	if !strings.HasPrefix(name, "BROKER_") {
		return true
	}
	_, ok := names[name]
	_, fromFile := names[strings.TrimSuffix(name, "_FILE")]
	return ok || fromFile
}

// routes returns the paths that a broker answers with GET and that take no parameter.
func routes(t *testing.T) map[string]bool {
	t.Helper()
	paths := map[string]bool{}
	for _, row := range regexp.MustCompile("(?m)^\\| \\[`GET (/[^`{]*)`\\]").
		FindAllStringSubmatch(read(t, "docs/routes.md"), -1) {
		paths[row[1]] = true
	}
	require.Contains(t, paths, "/version")
	return paths
}

func TestNamesThatNoBrokerKnowsAreFound(t *testing.T) {
	names := settings(t)
	require.True(t, known(names, "BROKER_ADMIN_TOKEN_FILE"))
	require.False(t, known(names, "BROKER_PORT"))
	require.True(t, names["BROKER_MYSQL_DSN"])
	require.False(t, names["BROKER_LISTEN"])
	require.False(t, routes(t)["/healthz"])
}
