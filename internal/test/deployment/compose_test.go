package deployment

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/loader"
	"github.com/compose-spec/compose-go/v2/types"
	"github.com/stretchr/testify/require"
)

// compose loads a file as `docker compose` does: the schema of compose first, then what refers to what. A variable
// that is not set has the default that stands in the file.
func compose(t *testing.T, text string) (*types.Project, error) {
	t.Helper()
	folder, err := filepath.Abs(root)
	require.NoError(t, err)
	return loader.LoadWithContext(t.Context(), types.ConfigDetails{
		WorkingDir:  folder,
		ConfigFiles: []types.ConfigFile{{Filename: filepath.Join(folder, "docker-compose.yml"), Content: []byte(text)}},
	})
}

func TestComposeTakesTheFile(t *testing.T) {
	project, err := compose(t, read(t, "docker-compose.yml"))
	require.NoError(t, err)
	names := settings(t)
	for _, s := range project.Services {
		for name := range s.Environment {
			require.True(t, known(names, name), "%s: %s", s.Name, name)
		}
		for _, v := range s.Volumes {
			if v.Type == types.VolumeTypeBind {
				require.FileExists(t, v.Source)
			}
		}
		for _, p := range s.Ports {
			require.Equal(t, "127.0.0.1", p.HostIP, "the secrets of the file are known to everybody")
		}
		if s.Build != nil {
			require.FileExists(t, filepath.Join(s.Build.Context, s.Build.Dockerfile))
		}
	}
	require.Contains(t, project.Services, "broker")
}

func TestWhatComposeDoesNotTakeIsFound(t *testing.T) {
	text := read(t, "docker-compose.yml")
	for _, wrong := range []struct{ old, new, why string }{
		{"    read_only: true\n", "    readonly: true\n", "readonly"},
		{"interval: 2s", "interval: soon", "duration"},
		{"condition: service_healthy", "condition: healthy", "condition"},
		{"      mysql:\n        condition", "      mariadb:\n        condition", "mariadb"},
		{"- broker-data:/data", "- brokers-data:/data", "brokers-data"},
	} {
		require.Contains(t, text, wrong.old)
		_, err := compose(t, strings.Replace(text, wrong.old, wrong.new, 1))
		require.ErrorContains(t, err, wrong.why, wrong.new)
	}
}
