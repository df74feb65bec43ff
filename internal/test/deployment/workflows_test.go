package deployment

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

// A workflow is what the tests read of one of GitHub.
type workflow struct {
	Name string
	Jobs map[string]struct {
		TimeoutMinutes int `json:"timeout-minutes"`
		Steps          []struct{ Run, Uses string }
	}
}

// GitHub passes over a workflow that is no YAML. Each one is, its jobs end, and run targets and scripts that are there.
func TestWorkflowsRunWhatIsThere(t *testing.T) {
	files, err := filepath.Glob(root + "/.github/workflows/*.yml")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	makefile, ran := read(t, "Makefile"), 0
	for _, file := range files {
		name := filepath.Base(file)
		var w workflow
		require.NoError(t, yaml.Unmarshal([]byte(read(t, ".github/workflows/"+name)), &w), name)
		require.NotEmpty(t, w.Jobs, name)
		for job, j := range w.Jobs {
			require.Positive(t, j.TimeoutMinutes, job)
			require.NotEmpty(t, j.Steps, job)
			for _, step := range j.Steps {
				require.True(t, (step.Run == "") != (step.Uses == ""), job)
				if step.Uses != "" {
					require.Regexp(t, `@[0-9a-f]{40}$`, step.Uses, "a tag can be moved")
				}
				for _, target := range regexp.MustCompile(`\bmake ([a-z-]+)`).FindAllStringSubmatch(step.Run, -1) {
					require.Contains(t, makefile, "\n"+target[1]+": ##")
					ran++
				}
				if script := strings.Fields(step.Run + " -")[0]; strings.HasPrefix(script, "./") {
					require.FileExists(t, filepath.Join(root, script))
				}
			}
		}
	}
	require.Greater(t, ran, 5)
}
