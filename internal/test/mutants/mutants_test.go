package mutants

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

const root = "../../.."

// Each patch applies to the tree, and names a package with a test of that name. Whether the test fails with it is what
// make mutants finds out.
func TestEachPatchAppliesAndNamesATest(t *testing.T) {
	patches, err := filepath.Glob("*.patch")
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(patches), 8)
	head := regexp.MustCompile(`\A[a-zA-Z][^\n]+\nrun: \./(\S+) (Test\w*)\n\n--- a/`)
	for _, patch := range patches {
		text, err := os.ReadFile(patch)
		require.NoError(t, err)
		m := head.FindSubmatch(text)
		require.NotNil(t, m, "%s begins with what the mistake is, and a line run: PACKAGE TEST", patch)
		found := false
		files, err := filepath.Glob(filepath.Join(root, string(m[1]), "*_test.go"))
		require.NoError(t, err)
		for _, file := range files {
			source, err := os.ReadFile(file)
			require.NoError(t, err)
			found = found || regexp.MustCompile(`(?m)^func `+string(m[2])+`\w*\(`).Match(source)
		}
		require.True(t, found, "%s names %s of %s", patch, m[2], m[1])
		path, err := filepath.Abs(patch)
		require.NoError(t, err)
		cmd := exec.Command("git", "apply", "--check", path)
		cmd.Dir = root
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s does not apply: %s", patch, out)
	}
}
