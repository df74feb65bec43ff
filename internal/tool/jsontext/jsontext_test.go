package jsontext

import (
	"encoding/json"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

func FuzzTextIsJSONOfTheSizeThatWasTold(f *testing.F) {
	for _, s := range []string{"", "plain", "\"\\\n\r\t", "\x00\x01\x1f\x7f", "\u00e4\u2028\U0001f600", "</script>"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if !utf8.ValidString(s) {
			return
		}
		b := Append(nil, s)
		require.Len(t, b, Size(s))
		require.Equal(t, b, Append(nil, []byte(s)))
		var back string
		require.NoError(t, json.Unmarshal(b, &back))
		require.Equal(t, s, back)
	})
}
