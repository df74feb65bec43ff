package clients

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// sqsFolder returns a copy of testdata/sqs with its packages of npm installed.
func sqsFolder(t *testing.T) string {
	t.Helper()
	to := t.TempDir()
	require.NoError(t, os.CopyFS(to, os.DirFS(filepath.Join("testdata", "sqs"))))
	require.NoError(t, os.RemoveAll(filepath.Join(to, "node_modules")))
	command(t, to, nil, "npm", "ci", "--no-audit", "--no-fund")
	return to
}

// The SDK of AWS, unchanged, does with a broker what it does with SQS.
func TestTheSDKOfAWSTakesTheBrokerForSQS(t *testing.T) {
	t.Parallel()
	folder := sqsFolder(t)
	b := startBroker(t, "BROKER_ALLOW_DELETE=true")
	command(t, folder, []string{"SQS_ENDPOINT=" + b.url}, "node", "--test", "sdk.test.mjs")
}
