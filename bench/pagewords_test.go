package bench

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/test/script"
)

// Each command of bench that a page names is there, in a block or in a sentence, with its flags.
func TestEachCommandOfBenchOnAPageExists(t *testing.T) {
	found := 0
	for _, page := range script.Pages(t) {
		whole, parts := script.Shown(script.Page(t, page))
		for _, words := range append(whole, parts...) {
			if filepath.Base(words[0]) != "bench" || len(words) == 1 {
				continue
			}
			found++
			var help, said bytes.Buffer
			code := run(t.Context(), []string{words[1], "--help"}, &help, &said)
			require.Equal(t, ExitOK, code, "%s: %s: %s", page, words, said.String())
			for _, word := range words[2:] {
				if name, _, _ := strings.Cut(word, "="); strings.HasPrefix(name, "--") && name != "--help" {
					require.Regexp(t, `(?m)^  `+name+`\b`, help.String(), "%s: %s", page, words)
				}
			}
		}
	}
	require.Greater(t, found, 10)
}
