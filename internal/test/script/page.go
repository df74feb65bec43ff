package script

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Root returns the folder of the repository, from any folder of it.
func Root(t testing.TB) string {
	t.Helper()
	folder, err := os.Getwd()
	require.NoError(t, err)
	for {
		if _, err := os.Stat(filepath.Join(folder, "ARCHITECTURE.md")); err == nil {
			return folder
		}
		require.NotEqual(t, filepath.Dir(folder), folder, "this is no folder of the repository")
		folder = filepath.Dir(folder)
	}
}

// Page returns the text of a page, which is named by its path from the root.
func Page(t testing.TB, page string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(Root(t), page))
	require.NoError(t, err)
	return string(text)
}

// Pages returns the pages of the project. Each pattern of path.Match, from the root, has some.
func Pages(t testing.TB) []string {
	t.Helper()
	return Glob(t, "*.md", "docs/*.md", "docs/*/*.md", "clients/*/*.md")
}

// Glob returns the paths from the root of files. Each pattern has some.
func Glob(t testing.TB, patterns ...string) (found []string) {
	t.Helper()
	root := Root(t)
	for _, pattern := range patterns {
		files, err := filepath.Glob(filepath.Join(root, pattern))
		require.NoError(t, err)
		require.NotEmpty(t, files, pattern)
		for _, file := range files {
			rel, err := filepath.Rel(root, file)
			require.NoError(t, err)
			found = append(found, rel)
		}
	}
	return found
}

// fence is a block of code, also one that is indented.
var fence = regexp.MustCompile("(?ms)^ *```(\\w*)\n(.*?)^ *```\n")

// Blocks returns the blocks of code of a text in a language: sh, text, or "" where none is named.
func Blocks(text, language string) (blocks []string) {
	for _, m := range fence.FindAllStringSubmatch(text, -1) {
		if m[1] == language {
			blocks = append(blocks, m[2])
		}
	}
	return blocks
}

// inline is code within a sentence.
var inline = regexp.MustCompile("`([^`]+)`")

// Shown returns the commands that a text shows: those of its blocks of sh, and the first ones of code in sentences,
// which may be parts of commands, or none.
func Shown(text string) (whole, parts [][]string) {
	for _, block := range Blocks(text, "sh") {
		whole = append(whole, Words(block)...)
	}
	for _, m := range inline.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
		if commands := Words(strings.ReplaceAll(m[1], "\n", " ")); len(commands) > 0 {
			parts = append(parts, commands[0])
		}
	}
	return whole, parts
}

// Commands returns the blocks of sh of a page, without those that start or build a program with make.
func Commands(t testing.TB, page string) (text string) {
	t.Helper()
	for _, block := range Blocks(Page(t, page), "sh") {
		if !strings.HasPrefix(block, "make ") {
			text += block
		}
	}
	require.NotEmpty(t, text, page)
	return text
}
