package clients

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/test/script"
)

// atBroker is how commands of a page are run at a broker that has the address http://broker:8080 or that of make run
// there. broker is the program.
func atBroker(t *testing.T, b *broker, env ...string) script.Run {
	t.Helper()
	own := append(cleanEnv(), "NO_PROXY=*", "PROGRAM="+brokerProgram, "PENSTOCK_URL="+b.url)
	return script.Run{Folder: t.TempDir(), Env: append(own, env...), Within: patience,
		Begin: script.Strict + `broker() { "$PROGRAM" "$@"; }` + "\n",
		Also:  []string{"http://127.0.0.1:8080", b.url, "http://broker:8080", b.url}}
}

// The commands and the program of the page make a row of an outbox, which becomes a message.
func TestTheCommandsOfThePageAboutTheOutboxWork(t *testing.T) {
	t.Parallel()
	path, err := filepath.Abs(pythonClient)
	require.NoError(t, err)
	b := startBroker(t)
	page := script.Page(t, "docs/how-to/outbox.md")
	commands, programs := script.Blocks(page, "sh"), script.Blocks(page, "python")
	require.Len(t, commands, 2)
	require.Len(t, programs, 1)
	run := atBroker(t, b, "PYTHONPATH="+path, "PYTHONDONTWRITEBYTECODE=1")
	run.Instead = []string{"broker outbox --dsn sqlite:shop.db", "broker outbox --dsn sqlite:shop.db --once"}
	out := run.Text(t, commands[0]+"python3 - <<'END'\n"+programs[0]+"END\n"+commands[1])
	require.Contains(t, out, "CREATE TABLE")
	require.Equal(t, 1, b.messages("orders"), out)
}

// The commands of the page send and receive a message, by boto3 of Debian and, where it is installed, by the command
// line of AWS; so does a client with the access key that an operator makes.
func TestTheCommandsOfThePageAboutSQSWork(t *testing.T) {
	t.Parallel()
	stub, err := filepath.Abs(filepath.Join("testdata", "sqs"))
	require.NoError(t, err)
	paths := map[string]string{"boto3": stub + ":" + os.Getenv("PATH")}
	if exec.CommandContext(t.Context(), "aws", "--version").Run() == nil {
		paths["the command line of AWS"] = os.Getenv("PATH")
	}
	blocks := script.Blocks(script.Page(t, "docs/how-to/from-sqs.md"), "sh")
	require.Len(t, blocks, 2)
	for client, path := range paths {
		t.Run(client, func(t *testing.T) {
			t.Parallel()
			env := []string{"PATH=" + path, "AWS_PAGER=", "AWS_EC2_METADATA_DISABLED=true"}
			const received = `"Body": "{\"order\":1}"`
			require.Contains(t, atBroker(t, startBroker(t), env...).Text(t, blocks[0]), received)

			run := atBroker(t, startBroker(t, "BROKER_OPEN_MANAGEMENT=false", "BROKER_ADMIN_TOKEN=admin"),
				append(env, "ADMIN=admin")...)
			out := run.Text(t, blocks[1])
			var key struct{ AccessKeyID, SecretAccessKey string }
			require.NoError(t, json.Unmarshal([]byte(out[strings.LastIndex(out, `{"`):]), &key), out)
			run.Instead = []string{"AWS_ACCESS_KEY_ID=any AWS_SECRET_ACCESS_KEY=any", "AWS_ACCESS_KEY_ID=" + key.AccessKeyID +
				" AWS_SECRET_ACCESS_KEY=" + key.SecretAccessKey, "sqs create-queue --queue-name orders\n", ""}
			require.Contains(t, run.Text(t, blocks[0]), received, "with an access key")
		})
	}
}
