package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// A broker whose data folder is removed would go on answering 201.
func TestABrokerEndsWhenItsDataFolderIsTakenAway(t *testing.T) {
	parallel(t)
	dir := filepath.Join(t.TempDir(), "data")
	p := emptyWorld(t).with("BROKER_DATA_DIR=" + dir).start()
	p.sample("k")
	p.publish("before")
	require.NoError(t, os.Rename(dir, dir+"-moved"))
	p.awaitEnd()
	require.Equal(t, exitStart, p.cmd.ProcessState.ExitCode(), p.log.String())
	require.Contains(t, p.log.String(), "broker died")
	require.Contains(t, p.log.String(), "was removed, renamed or replaced")
	require.NoFileExists(t, filepath.Join(dir, "penstock.db"))

	again := emptyWorld(t).with("BROKER_DATA_DIR=" + dir + "-moved").start()
	eventually(t, "what was stored before is where the folder is", func() bool { return len(again.queued("k")) == 1 })
}
