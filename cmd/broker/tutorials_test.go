package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// Every command of the tutorials does on an empty store what the page says, and the page shows what it prints:
// go test ./cmd/broker -run TestEachTutorial -update writes the answers.
func TestEachTutorialAnswersAsItsPageSays(t *testing.T) {
	parallel(t)
	pages, err := filepath.Glob("../../docs/start/*.md")
	require.NoError(t, err)
	require.Len(t, pages, 3)
	for _, file := range pages {
		t.Run(filepath.Base(file), func(t *testing.T) {
			parallel(t)
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			page, got := parseWalkthrough(t, string(text)), parseWalkthrough(t, string(text))
			got.walk(t, emptyWorld(t))
			if *update {
				require.NoError(t, os.WriteFile(file, []byte(got.String()), 0o644))
				return
			}
			requireSameLines(t, masked(page.String()), masked(got.String()))
		})
	}
}
