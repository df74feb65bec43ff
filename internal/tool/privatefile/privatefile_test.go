//go:build unix

package privatefile

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

func mode(t *testing.T, path string) os.FileMode {
	t.Helper()
	info, err := os.Stat(path)
	require.NoError(t, err)
	return info.Mode().Perm()
}

func TestAFileIsForItsOwnerOnly(t *testing.T) {
	dir := t.TempDir()
	for _, umask := range []int{0, 0o022, 0o277} {
		before := syscall.Umask(umask)
		file := filepath.Join(dir, "new", "a", string(rune('a'+umask%26)))
		err := Folder(filepath.Dir(file))
		if err == nil {
			err = Make(file)
		}
		syscall.Umask(before)
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o600), mode(t, file), "umask %o", umask)
		require.Equal(t, os.FileMode(0o700), mode(t, filepath.Dir(file)))
	}
}

func TestAFileThatWasThereKeepsWhatItHolds(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "f")
	for was, want := range map[os.FileMode]os.FileMode{0o644: 0o600, 0o666: 0o600, 0o600: 0o600, 0o440: 0o400} {
		require.NoError(t, os.WriteFile(file, []byte("content"), 0o600))
		require.NoError(t, os.Chmod(file, was))
		require.NoError(t, Make(file))
		require.Equal(t, want, mode(t, file))
		require.NoError(t, os.Chmod(file, 0o600))
	}
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, "content", string(text))
	require.NoError(t, Tighten(file+" that is not there"))
	require.NoFileExists(t, file+" that is not there")
}

func TestWhatIsNoRegularFileStaysAsItIs(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	require.NoError(t, syscall.Mkfifo(pipe, 0o600))
	require.NoError(t, os.Chmod(pipe, 0o666))
	require.NoError(t, Make(pipe))
	require.Equal(t, os.FileMode(0o666), mode(t, pipe))

	wide := t.TempDir()
	require.NoError(t, os.Chmod(wide, 0o755))
	require.NoError(t, Folder(wide))
	require.Equal(t, os.FileMode(0o755), mode(t, wide))
}
