package clients

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

// The scripts of others that the dashboard has are those of their npm package, byte by byte.
func TestTheScriptsOfTheDashboardAreThoseOfTheirPackage(t *testing.T) {
	t.Parallel()
	vendor := filepath.Join("..", "..", "feature", "ui", "assets", "vendor")
	page, err := os.ReadFile(filepath.Join(vendor, "README.md"))
	require.NoError(t, err)
	name := regexp.MustCompile("`(htmx\\.org@[0-9.]+)`").FindSubmatch(page)
	require.Len(t, name, 2)
	folder := t.TempDir()
	command(t, folder, nil, "npm", "pack", "--silent", string(name[1]))
	archives, err := filepath.Glob(filepath.Join(folder, "*.tgz"))
	require.NoError(t, err)
	require.Len(t, archives, 1)
	command(t, folder, nil, "tar", "xzf", archives[0])
	files := regexp.MustCompile("(?m)^\\| `([^`]+)` \\| `(dist/[^`]+)` \\|").FindAllStringSubmatch(string(page), -1)
	require.Len(t, files, 3)
	for _, f := range append(files, []string{"", "LICENSE", "LICENSE"}) {
		ours, err := os.ReadFile(filepath.Join(vendor, f[1]))
		require.NoError(t, err)
		theirs, err := os.ReadFile(filepath.Join(folder, "package", f[2]))
		require.NoError(t, err)
		require.Equal(t, string(theirs), string(ours), f[1])
	}
}
