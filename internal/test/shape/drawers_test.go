package shape

import (
	"go/build"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Each package of internal is in one of three drawers: the model and the tools know no feature, and of
// the model a tool knows only how an error is told.
func TestDrawersAreImportedFromAbove(t *testing.T) {
	drawers, err := os.ReadDir(filepath.Join(root, "internal"))
	require.NoError(t, err)
	require.Equal(t, []string{"feature", "model", "test", "tool"}, names(drawers))
	for name, imported := range map[string]func(own string) bool{
		"internal/model": func(own string) bool { return !strings.HasPrefix(own, "internal/feature/") },
		"internal/tool": func(own string) bool {
			return strings.HasPrefix(own, "internal/tool/") || own == "internal/model/problem"
		},
	} {
		packages, err := os.ReadDir(filepath.Join(root, name))
		require.NoError(t, err)
		require.NotEmpty(t, packages)
		for _, p := range names(packages) {
			from := name + "/" + p
			built, err := build.Default.ImportDir(filepath.Join(root, from), 0)
			require.NoError(t, err)
			for _, path := range built.Imports {
				if own, ok := strings.CutPrefix(path, module); ok {
					require.True(t, imported(own), "%s imports %s", from, own)
				}
			}
		}
	}
}

func names(entries []fs.DirEntry) []string {
	var out []string
	for _, e := range entries {
		if e.IsDir() {
			out = append(out, e.Name())
		}
	}
	slices.Sort(out)
	return out
}
