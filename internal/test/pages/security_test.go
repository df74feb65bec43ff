package pages

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// securityPages say what is defended. What they name as a proof or a means exists under its whole name.
var securityPages = []string{"SECURITY.md", "docs/explain/security.md"}

func TestTheSecurityPagesNameWhatExists(t *testing.T) {
	tests := map[string]bool{}
	function := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)
	require.NoError(t, fs.WalkDir(os.DirFS(root), ".", func(name string, d fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(name, "_test.go") {
			for _, m := range function.FindAllStringSubmatch(read(t, name), -1) {
				tests[m[1]] = true
			}
		}
		return err
	}))
	settings, targets := "", read(t, "Makefile")
	for _, page := range pagesOf(t) {
		if strings.HasPrefix(page, "docs/settings/") {
			settings += read(t, page)
		}
	}
	named := 0
	for _, page := range securityPages {
		text := read(t, page)
		for _, name := range regexp.MustCompile(`\b(?:Test|Fuzz)[A-Z]\w+`).FindAllString(text, -1) {
			named++
			require.True(t, tests[name], "%s names %s", page, name)
		}
		for _, name := range regexp.MustCompile(`\bBROKER_[A-Z0-9_]+`).FindAllString(text, -1) {
			require.Contains(t, settings, "| `"+strings.TrimSuffix(name, "_FILE")+"` |", page)
		}
		for _, m := range regexp.MustCompile("`make ([a-z-]+)`").FindAllStringSubmatch(text, -1) {
			require.Regexp(t, `(?m)^`+m[1]+`:`, targets, page)
		}
		for _, m := range regexp.MustCompile("`((?:[\\w.-]+/)+[\\w.-]+\\.\\w+|go\\.sum)`").FindAllStringSubmatch(text, -1) {
			require.FileExists(t, filepath.Join(root, m[1]), page)
		}
	}
	require.Greater(t, named, 60)
}

// An attack without the test that shows its end is a wish.
func TestEachAttackOfTheSecurityPageHasATest(t *testing.T) {
	rows := 0
	for line := range strings.Lines(read(t, "docs/explain/security.md")) {
		c := cells(strings.TrimSpace(line))
		if len(c) != 3 || c[0] == "attack" || strings.HasPrefix(c[0], "---") {
			continue
		}
		rows++
		require.Regexp(t, "`(Test|Fuzz)[A-Z]", c[2], "%s", c[0])
		require.NotEmpty(t, c[1], c[0])
	}
	require.Greater(t, rows, 20)
}

// A tag can be moved, a commit cannot.
func TestActionsArePinnedByCommit(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(root, ".github/workflows/*.yml"))
	require.NoError(t, err)
	uses := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, m := range regexp.MustCompile(`(?m)^\s*(?:- )?uses:\s*(\S+)`).FindAllStringSubmatch(string(text), -1) {
			uses++
			require.Regexp(t, `^[\w/.-]+@[0-9a-f]{40}$`, m[1], file)
		}
	}
	require.Greater(t, uses, 3)
}
