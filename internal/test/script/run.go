package script

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Strict begins a script that ends with the first command that fails. An answer of 400 or more fails a curl.
const Strict = "set -e -o pipefail\ncurl() { command curl --fail-with-body \"$@\"; }\n"

// A Run is how commands are run.
type Run struct {
	Folder  string   // where; "": here
	Env     []string // NAME=VALUE: all that they have
	Begin   string   // what comes before them; "": Strict
	Instead []string // pairs of texts: the commands have the first, and the second is run
	Also    []string // the same for texts that they may have
	Within  time.Duration
}

// Page runs the commands of a page and returns what they print. They must succeed.
func (r Run) Page(t testing.TB, page string) string {
	t.Helper()
	return r.Text(t, Commands(t, page))
}

// Text is Page for the commands themselves.
func (r Run) Text(t testing.TB, text string) string {
	t.Helper()
	if r.Begin == "" {
		r.Begin = Strict
	}
	for i := 0; i < len(r.Instead); i += 2 {
		require.Contains(t, r.Begin+text, r.Instead[i])
	}
	text = strings.NewReplacer(append(append([]string{}, r.Instead...), r.Also...)...).Replace(r.Begin + text)
	ctx, cancel := context.WithTimeout(t.Context(), r.Within)
	defer cancel()
	file := filepath.Join(t.TempDir(), "commands") // from its input, a command that reads that would take the rest
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	bash := exec.CommandContext(ctx, "bash", file)
	bash.Dir, bash.Env = r.Folder, r.Env
	bash.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	// It ends with what it has begun; a curl in front of grep -q ends later.
	bash.Cancel = func() error { return syscall.Kill(-bash.Process.Pid, syscall.SIGKILL) }
	bash.WaitDelay = r.Within
	var out bytes.Buffer
	bash.Stdout, bash.Stderr = &out, &out
	require.NoError(t, bash.Run(), "%s\n%s", text, out.String())
	return out.String()
}
