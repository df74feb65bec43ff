package jsontext

import (
	"bytes"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// Paired reports whether each escaped surrogate of a valid JSON string is followed by its other
// half. encoding/json replaces a half that stands alone, other readers keep or refuse it.
func Paired(raw []byte) bool {
	for i := max(bytes.IndexByte(raw, '\\'), 0); i < len(raw); i++ {
		if raw[i] != '\\' {
			continue
		}
		if i++; raw[i] != 'u' {
			continue
		}
		first := hex4(raw[i+1:])
		i += 4
		if !utf16.IsSurrogate(first) {
			continue
		}
		if i+7 > len(raw) || raw[i+1] != '\\' || raw[i+2] != 'u' ||
			utf16.DecodeRune(first, hex4(raw[i+3:])) == utf8.RuneError {
			return false
		}
		i += 6
	}
	return true
}

// hex4 reads the four digits of an escape.
func hex4(digits []byte) rune {
	n, _ := strconv.ParseUint(string(digits[:4]), 16, 16) // the JSON is valid
	return rune(n)
}
