//go:build unix

package main

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/test/servers"
)

func TestATemporaryFolderOfTheCallerIsKept(t *testing.T) {
	own := t.TempDir()
	t.Setenv("TMPDIR", own)
	t.Setenv("GOTMPDIR", "")
	require.NoError(t, filesInMemory())
	require.Equal(t, own, os.TempDir())
	require.Empty(t, os.Getenv("GOTMPDIR"))
}

func TestWhatGoBuildsAndWhatTestsKillStayOnTheDisk(t *testing.T) {
	for _, name := range []string{"TMPDIR", "GOTMPDIR", servers.EnvDisk} {
		t.Setenv(name, "")
	}
	disk := os.TempDir()
	require.NoError(t, filesInMemory())
	if os.TempDir() == disk { // no room in memory: nothing is to be set
		require.Empty(t, os.Getenv("GOTMPDIR"))
		return
	}
	require.DirExists(t, os.TempDir())
	require.Equal(t, disk, os.Getenv("GOTMPDIR"))
	require.Equal(t, disk, os.Getenv(servers.EnvDisk))
}

func TestOptionsOfTheRaceDetectorAreAdded(t *testing.T) {
	t.Setenv("GORACE", "")
	require.Equal(t, "GORACE=atexit_sleep_ms=100", raceOptions())
	t.Setenv("GORACE", "halt_on_error=1 atexit_sleep_ms=0") // the last one counts
	require.Equal(t, "GORACE=atexit_sleep_ms=100 halt_on_error=1 atexit_sleep_ms=0", raceOptions())
}

func TestAPaceOfTheGarbageCollectorOfTheCallerIsKept(t *testing.T) {
	t.Setenv("GOGC", "")
	require.Equal(t, "GOGC=400", collectLess())
	t.Setenv("GOGC", "50")
	require.Equal(t, "GOGC=50", collectLess())
}
