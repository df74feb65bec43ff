package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// repository makes one whose branch main has the files a, b and c, and enters it.
func repository(t *testing.T) (git func(args ...string), write func(name string)) {
	for _, name := range []string{"GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"} { // of a hook that runs the tests
		t.Setenv(name, "")
		require.NoError(t, os.Unsetenv(name))
	}
	t.Chdir(t.TempDir())
	git = func(args ...string) {
		t.Helper()
		args = append([]string{"-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "commit.gpgsign=false"}, args...)
		out, err := exec.Command("git", args...).CombinedOutput()
		require.NoError(t, err, string(out))
	}
	write = func(name string) {
		t.Helper()
		require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o700))
		require.NoError(t, os.WriteFile(name, []byte(t.Name()+name), 0o600))
	}
	git("init", "-q", "-b", "main")
	for _, name := range []string{"a", "b", "c"} {
		require.NoError(t, os.WriteFile(name, []byte(name+" as it was\n"), 0o600))
	}
	git("add", ".")
	git("commit", "-q", "-m", "first")
	return git, write
}

func TestEveryKindOfChangeOfABranchIsFound(t *testing.T) {
	git, write := repository(t)
	git("branch", "mine")
	write("others") // main goes on meanwhile
	git("add", "others")
	git("commit", "-q", "-m", "the work of others")
	git("checkout", "-q", "mine")
	write("a")
	git("commit", "-q", "-a", "-m", "a changed")
	git("mv", "b", "moved")
	require.NoError(t, os.Remove("c"))
	write("new folder/new")
	write("ignored")
	require.NoError(t, os.WriteFile(".gitignore", []byte("ignored\n"), 0o600))

	base, err := leftAt(t.Context(), "main")
	require.NoError(t, err)
	files, err := changed(t.Context(), base)
	require.NoError(t, err)
	slices.Sort(files)
	require.Equal(t, []string{".gitignore", "a", "b", "c", "moved", "new folder/new"}, files)
}

func TestABranchThatOnlyTheRemoteHasIsABase(t *testing.T) {
	git, _ := repository(t)
	git("update-ref", "refs/remotes/origin/main", "HEAD")
	git("checkout", "-q", "-b", "mine")
	git("branch", "-q", "-D", "main")
	_, err := leftAt(t.Context(), "main")
	require.NoError(t, err)
	_, err = leftAt(t.Context(), "elsewhere")
	require.ErrorContains(t, err, "elsewhere")
}

func TestModulesBelowThisOneAreFound(t *testing.T) {
	git, write := repository(t)
	none, err := otherModules(t.Context())
	require.NoError(t, err)
	require.Empty(t, none)
	write("go.mod")
	write("bench/peers/go.mod")
	git("add", ".")
	dirs, err := otherModules(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{"bench/peers"}, dirs)
}
