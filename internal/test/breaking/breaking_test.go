package breaking

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

const file = "internal/feature/openapi/openapi.json"

// A repository is one with openapi.json and nothing else.
type repository struct {
	t      *testing.T
	folder string
}

func newRepository(t *testing.T) *repository {
	t.Helper()
	r := &repository{t, t.TempDir()}
	require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(r.folder, file)), 0o755))
	r.git("init", "-q")
	return r
}

func (r *repository) git(arguments ...string) {
	r.t.Helper()
	cmd := exec.Command("git", append([]string{"-C", r.folder, "-c", "user.name=test", "-c", "user.email=test@example.org",
		"-c", "commit.gpgsign=false", "-c", "tag.gpgsign=false"}, arguments...)...)
	out, err := cmd.CombinedOutput()
	require.NoError(r.t, err, "%s", out)
}

func (r *repository) write(document []byte) {
	r.t.Helper()
	require.NoError(r.t, os.WriteFile(filepath.Join(r.folder, file), document, 0o644))
}

// breaking runs the script on the repository and returns its exit code and what it says.
func (r *repository) breaking(ref string) (code int, said string) {
	r.t.Helper()
	out, err := exec.Command("../../../scripts/breaking.sh", ref, r.folder).CombinedOutput()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exit.ExitCode(), string(out)
	}
	require.NoError(r.t, err)
	return 0, string(out)
}

// changed returns our document after a change.
func changed(t *testing.T, original []byte, change func(paths map[string]any)) []byte {
	t.Helper()
	var d map[string]any
	require.NoError(t, json.Unmarshal(original, &d))
	change(d["paths"].(map[string]any))
	text, err := json.Marshal(d)
	require.NoError(t, err)
	return text
}

func TestAChangeThatBreaksClientsIsListed(t *testing.T) {
	ours, err := os.ReadFile("../../../" + file)
	require.NoError(t, err)
	r := newRepository(t)
	r.write(ours)
	r.git("add", ".")
	r.git("commit", "-q", "-m", "first")
	code, said := r.breaking("")
	require.Equal(t, 0, code, said)
	require.Contains(t, said, "There is no tag yet")

	r.git("tag", "v0.1.0")
	code, said = r.breaking("")
	require.Equal(t, 0, code, said)
	require.Contains(t, said, "Nothing in "+file+" breaks a client of v0.1.0.")

	const route = "/channel/{channel}/broadcast"
	r.write(changed(t, ours, func(paths map[string]any) { // a new route breaks nobody
		paths["/channel/{channel}/another"] = map[string]any{"get": map[string]any{"operationId": "another",
			"parameters": paths[route].(map[string]any)["post"].(map[string]any)["parameters"].([]any)[:1],
			"responses":  map[string]any{"200": map[string]any{"description": "done"}}}}
	}))
	code, said = r.breaking("")
	require.Equal(t, 0, code, said)

	r.write(changed(t, ours, func(paths map[string]any) { delete(paths, route) }))
	code, said = r.breaking("")
	require.Equal(t, 1, code, said)
	require.Contains(t, said, route)
	r.write(changed(t, ours, func(paths map[string]any) {
		p := paths[route].(map[string]any)["post"].(map[string]any)["parameters"].([]any)[1].(map[string]any)
		p["required"] = true
	}))
	code, said = r.breaking("")
	require.Equal(t, 1, code, said)
	require.Contains(t, said, "x-broker-message-id` became required")
	code, _ = r.breaking("v0.1.0")
	require.Equal(t, 1, code)

	r.write([]byte("{"))
	code, said = r.breaking("")
	require.Equal(t, 2, code, said)
	code, said = r.breaking("no-such-commit")
	require.Equal(t, 2, code, said)
	require.Contains(t, said, "There is no commit no-such-commit.")
}
