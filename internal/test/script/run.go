package script

import (
	"bytes"
	"context"
	"os/exec"
	"strings"
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
	bash := exec.CommandContext(ctx, "bash")
	bash.Dir, bash.Env, bash.Stdin = r.Folder, r.Env, strings.NewReader(text)
	bash.WaitDelay = r.Within // a curl in front of grep -q ends later
	var out bytes.Buffer
	bash.Stdout, bash.Stderr = &out, &out
	require.NoError(t, bash.Run(), "%s\n%s", text, out.String())
	return out.String()
}
