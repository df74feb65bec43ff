package redisq

import (
	"io/fs"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestKeysAreTheOnesTheScriptsName(t *testing.T) {
	require.Equal(t, []string{"p1:{c7}:r", "p1:{c7}:d", "p1:{c7}:x", "p1:{c7}:m", "p1:{c7}:c"}, keysOf(DefaultPrefix, 7))
	require.Equal(t, []string{"p1:{c7}:g9:r", "p1:{c7}:g9:d", "p1:{c7}:g9:x", "p1:{c7}:g9:m", "p1:{c7}:g9:c"},
		keysOfReplay(DefaultPrefix, 9, 7))
	require.Equal(t, "p1:hint", hintChannel(DefaultPrefix))
	prelude, err := lua.ReadFile("lua/prelude.lua")
	require.NoError(t, err)
	for i, name := range []string{"ready", "delayed", "leased", "meta", "control"} {
		require.Contains(t, string(prelude), "-- KEYS["+string(rune('1'+i))+"]  "+name)
	}
}

// In a Cluster a script may only use the keys in KEYS: others may be on another node.
func TestScriptsUseOnlyTheKeysInKEYS(t *testing.T) {
	calls := regexp.MustCompile(`redis\.p?call\(([^,)]*),?\s*([^,)]*)`)
	// i and set are loop variables over the three sets, state is one of them. The others are numbers of
	// keys that a replay has besides.
	handed := regexp.MustCompile(`^KEYS\[([1-8]|i|set|state|beside|key|rate\.key)\]$`)
	files, err := fs.Glob(lua, "lua/*.lua")
	require.NoError(t, err)
	seen := 0
	for _, file := range files {
		text, err := lua.ReadFile(file)
		require.NoError(t, err)
		body := code(string(text))
		require.Equal(t, strings.Count(body, "redis.call")+strings.Count(body, "redis.pcall"),
			len(calls.FindAllString(body, -1)), file)
		for _, c := range calls.FindAllStringSubmatch(body, -1) {
			seen++
			require.Regexp(t, "^'[A-Z]+'$", c[1], "%s: %s", file, c[0])
			if c[1] != "'TIME'" {
				require.Regexp(t, handed, c[2], "%s: %s", file, c[0])
			}
		}
	}
	require.Greater(t, seen, 50)
}

func TestPrefixWithBracesIsRefused(t *testing.T) {
	require.Panics(t, func() { New(nil, Options{Prefix: "{x}:"}) })
}

func TestEveryScriptBeginsWithItsContract(t *testing.T) {
	files, err := fs.Glob(lua, "lua/*.lua")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		text, err := lua.ReadFile(file)
		require.NoError(t, err)
		require.True(t, strings.HasPrefix(string(text), "-- "+strings.TrimPrefix(file, "lua/")+": "), file)
		require.NotContains(t, string(text), "tostring(", "it rounds at 14 digits: %s", file)
	}
}

func TestMalformedMetaIsAnError(t *testing.T) {
	m, err := parseMeta("1023|7|3|e.9|1763658000123")
	require.NoError(t, err)
	require.Equal(t, meta{priority: 1023, attempts: 7, flags: 3, token: "e.9", ready: "1763658000123"}, m)
	m, err = parseMeta("1|7|3|e.9|17|billing-3;1.8.2")
	require.NoError(t, err)
	require.Equal(t, meta{priority: 1, attempts: 7, flags: 3, token: "e.9", ready: "17", worker: "billing-3;1.8.2"}, m)
	m, err = parseMeta("")
	require.NoError(t, err)
	require.Zero(t, m)
	for _, bad := range []string{"1", "1|2|3|4", "1|2|3|4|5|6|7", "a|2|3||", "1|b|3||", "1|2|c||"} {
		_, err := parseMeta(bad)
		require.Error(t, err, bad)
	}
}

func TestRepliesThatBreakTheContractAreErrors(t *testing.T) {
	for name, read := range map[string]func(r *reader){
		"too short":       func(r *reader) { r.int(); r.int() },
		"not a number":    func(r *reader) { r.items = []any{"x"}; r.int() },
		"nil":             func(r *reader) { r.items = []any{nil}; r.int() },
		"not a string":    func(r *reader) { r.text() },
		"not an ID":       func(r *reader) { r.items = []any{"short"}; r.id() },
		"broken meta":     func(r *reader) { r.items = []any{"a|b"}; r.meta() },
		"broken standing": func(r *reader) { r.items = []any{int64(1), "x", ""}; r.standing() },
	} {
		r := reader{items: []any{int64(1)}}
		read(&r)
		require.Error(t, r.err, name)
		require.Zero(t, r.left(), name)
	}
}

func TestHintsAreReadBackAndNoiseIsIgnored(t *testing.T) {
	require.Equal(t, []uint32{1, 1<<32 - 1}, parseHint("\x00\x00\x00\x01\xff\xff\xff\xff"))
	require.Empty(t, parseHint("abc"))
	require.Empty(t, parseHint(strings.Repeat("x", 4*maxHint+4)))
}
