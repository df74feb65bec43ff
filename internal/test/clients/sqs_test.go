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

// An access key is all that a client of SQS needs where management is closed, and it does no more than it may.
func TestTheSDKOfAWSSignsWithAccessKeys(t *testing.T) {
	t.Parallel()
	folder := sqsFolder(t)
	b := startBroker(t, "BROKER_OPEN_MANAGEMENT=false", "BROKER_ADMIN_TOKEN=admin")
	command(t, folder, []string{"SQS_ENDPOINT=" + b.url, "SQS_ADMIN=admin"}, "node", "--test", "keys.test.mjs")
}
