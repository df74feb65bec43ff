package durable

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

// Error texts and consumers' answers fit their columns, whatever bytes they contain.
func FuzzNotes(f *testing.F) {
	for _, s := range []string{"", "plain", "\xff\xfe", strings.Repeat("\u20ac", 400), strings.Repeat("a", 1023) +
		"\u20ac", "\x00'\\", "\xed\xa0\x80"} {
		f.Add(s, 5)
	}
	f.Fuzz(func(t *testing.T, s string, n int) {
		kept := note(s)
		require.True(t, utf8.Valid(kept), "%q", kept)
		require.LessOrEqual(t, len(kept), maxNote)
		require.True(t, strings.HasPrefix(strings.ToValidUTF8(s, "\uFFFD"), string(kept)))
		require.LessOrEqual(t, len(head([]byte(s))), maxNote)
		if n >= 0 {
			clipped := clip(s, n)
			require.True(t, strings.HasPrefix(s, clipped))
			require.LessOrEqual(t, utf8.RuneCountInString(clipped), n)
		}
	})
}
