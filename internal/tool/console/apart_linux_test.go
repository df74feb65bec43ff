package console

import (
	"bytes"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// dying makes this test program one that panics.
const dying = "CONSOLE_TEST_DIES"

func TestMain(m *testing.M) {
	if os.Getenv(dying) == "" {
		os.Exit(m.Run())
	}
	stderr := New(Apart(os.Stderr), "stderr")
	_, _ = stderr.Write(bytes.Repeat([]byte("x"), 1<<20))
	panic("boom")
}

// The runtime writes the report of a panic to the descriptor itself.
func TestAProcessThatPanicsDoesNotWaitForTheReaderOfItsReport(t *testing.T) {
	r, w, err := os.Pipe()
	require.NoError(t, err)
	defer r.Close()
	_, err = unix.FcntlInt(w.Fd(), unix.F_SETPIPE_SZ, 4096)
	require.NoError(t, err)
	_, err = w.Write(bytes.Repeat([]byte("x"), 4096))
	require.NoError(t, err)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), dying+"=1")
	cmd.Stderr = w
	require.NoError(t, cmd.Start())
	require.NoError(t, w.Close())
	require.Error(t, cmd.Wait())
	require.Equal(t, 2, cmd.ProcessState.ExitCode())
}

// A pipe that is shared with other processes stays as it is for them.
func TestTheDescriptorOfAnotherProcessKeepsItsMode(t *testing.T) {
	r, w, err := os.Pipe()
	require.NoError(t, err)
	defer r.Close()
	defer w.Close()
	fd := int(w.Fd())
	shared, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3)
	require.NoError(t, err)
	defer unix.Close(shared)
	own := Apart(w)
	require.NotSame(t, w, own)
	defer own.Close()
	for descriptor, waits := range map[int]bool{shared: true, int(own.Fd()): true, fd: false} {
		flags, err := unix.FcntlInt(uintptr(descriptor), unix.F_GETFL, 0)
		require.NoError(t, err)
		require.Equal(t, waits, flags&unix.O_NONBLOCK == 0, "%d", descriptor)
	}
}

func TestARegularFileIsLeftAlone(t *testing.T) {
	f, err := os.CreateTemp(t.TempDir(), "")
	require.NoError(t, err)
	defer f.Close()
	require.Same(t, f, Apart(f))
}
