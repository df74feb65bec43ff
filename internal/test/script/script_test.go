package script

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestWordsAreThoseOfTheShell(t *testing.T) {
	require.Equal(t, [][]string{
		{"make", "t", "ARGS=-- -race"}, {"broker", "ctl", "export"}, {"source"}, {"broker", "ctl", "completion", "bash"},
		{"dpkg", "-i", "x.deb"}, {"broker", "serve"}, {"cat"}, {"curl", "-d", `{"a":"b c"}`, "http://127.0.0.1/$X"},
		{"grep", "a;b", ""}, {"sqs"}, {"aws", "sqs", "$@"}, {"true"},
	}, Words(`make t ARGS='-- -race'     # with # arguments
broker ctl export 2>/dev/null > broker.yaml
source <(broker ctl completion bash)
sudo dpkg -i x.deb || A=1 B="2 3" \
  broker serve
cat <<'END' >file
broker none
END
curl -d "{\"a\":\"b c\"}" http://127.0.0.1/$X | grep 'a;b' ""
sqs() { aws sqs "$@"; }
export=1; A=1
if true; then`))
}

func TestBlocksAndCodeInSentencesAreFound(t *testing.T) {
	const page = "Run `broker\nserve`:\n\n1. first\n\n   ```sh\n   broker `x`\n   ```\n\n```\nplain\n```\n" +
		"```text\nsaid\n```\n"
	require.Equal(t, []string{"   broker `x`\n"}, Blocks(page, "sh"))
	require.Equal(t, []string{"plain\n"}, Blocks(page, ""))
	require.Equal(t, []string{"said\n"}, Blocks(page, "text"))
	whole, parts := Shown(page)
	require.Equal(t, [][]string{{"broker", "`x`"}}, whole)
	require.Equal(t, [][]string{{"broker", "serve"}}, parts)
}

// A failing is a test that expects a failure.
type failing struct {
	testing.TB
	failed bool
}

func (f *failing) Helper()               {}
func (f *failing) Errorf(string, ...any) { f.failed = true }
func (f *failing) FailNow()              {}

func TestACommandThatFailsEndsARun(t *testing.T) {
	r := Run{Folder: t.TempDir(), Env: os.Environ(), Instead: []string{"one", "two"}, Also: []string{"three", "four"},
		Within: time.Minute}
	require.Equal(t, "two\n", r.Text(t, "echo one\n"))
	for _, text := range []string{"echo one; false; true", "echo one; false | true", "echo three"} {
		f := &failing{TB: t}
		r.Text(f, text)
		require.True(t, f.failed, text)
	}
}
