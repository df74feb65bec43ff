package cause

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

func TestErrorsThatDifferInNumbersHexUUIDsAndQuotedTextsAloneHaveOneFingerprint(t *testing.T) {
	for want, texts := range map[string][]string{
		"status #": {"status 500", "status 7"},
		"dial tcp #: connection refused": {"dial tcp 10.0.0.1:8080: connection refused",
			"dial tcp 127.0.0.1:9: connection refused"},
		"order # is gone": {"order 1 is gone", "order 12345678901234 is gone",
			"order '7' is gone", `order "a b" is gone`, "order `x` is gone", "order “x” is gone",
			"order 550e8400-e29b-41d4-a716-446655440000 is gone",
			"order ABCDEFAB-CDEF-ABCD-EFAB-ABCDEFABCDEF is gone", "order 0xDEAD is gone", "order deadbeef is gone",
			"order 7f9c8d is gone"},
		"took #s":                        {"took 1.5s", "took 20s", "took 1,000.25s"},
		"user_# can't login, it doesn't": {"user_1 can't login, it doesn't", "user_77 can't login, it doesn't"},
		"worker# at #":                   {"worker1 at 12:03:11", "worker22 at 2026"},
		"bad value #":                    {`bad value "cut off`, `bad value "another \" one`, `bad value "x"`},
		"a decade of added cafes":        {"a decade of added cafes", "a  decade\n of added\tcafes "},
		"żółć #":                         {"żółć 1", "żółć 22"},
		"POST https://example.com/a/#: EOF": {"POST https://example.com/a/1: EOF",
			"POST https://example.com/a/f00d1e: EOF"},
	} {
		for _, text := range texts {
			require.Equal(t, want, Normal(text), "%q", text)
			require.Equal(t, Of(Failed, 0, want), Of(Failed, 0, text))
		}
	}
}

func TestKindStatusAndTextMakeDifferentFingerprints(t *testing.T) {
	seen := map[Fingerprint]bool{}
	for _, f := range []Fingerprint{Of(Answered, 500, "status 500"), Of(Answered, 502, "status 502"), Of(Failed, 0,
		"status 500"),
		Of("expired", 0, "status 500"), Of(Failed, 0, "timeout"), Of(Failed, 0, "")} {
		require.False(t, seen[f])
		seen[f] = true
	}
}

func TestAFingerprintIsTheSameInEachRelease(t *testing.T) {
	require.Equal(t, "81382dd5798bbe48", Of(Answered, 500, "status 500").String())
}

func TestAFingerprintIsReadAsItIsShown(t *testing.T) {
	for _, f := range []Fingerprint{Other, 1, -1, Of(Failed, 0, "x")} {
		got, ok := Parse(f.String())
		require.True(t, ok)
		require.Equal(t, f, got)
	}
	for _, text := range []string{"", "1", "xyz", "0000000000000000", "+000000000000001", "00000000000000001"} {
		_, ok := Parse(text)
		require.False(t, ok, text)
	}
}

func TestANormalTextHasAtMost200BytesAndWholeCharacters(t *testing.T) {
	require.Len(t, Normal(strings.Repeat("x", 300)), 200)
	require.Equal(t, Normal(strings.Repeat("x", 200)+"a"), Normal(strings.Repeat("x", 200)+"b"))
	long := Normal("x" + strings.Repeat("ż", 300))
	require.Len(t, long, 199)
	require.True(t, utf8.ValidString(long))
	require.Equal(t, Normal(strings.Repeat("1", 3000)+" y"), Normal("2 y"), "what is replaced does not count")
	require.Empty(t, Normal(""))
}

func FuzzANormalTextIsShortValidAndNormal(f *testing.F) {
	for _, text := range []string{"", "a 1", `"`, "'", "\xff\"\xfe", "‘x’ “y", "0x", "1.2.3:", "##", "a\x00b"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		once := Normal(text)
		require.LessOrEqual(t, len(once), 200)
		require.True(t, utf8.ValidString(once))
	})
}
