package durable

import (
	"strings"
	"unicode/utf8"
)

// maxNote bounds the stored bytes of an error text and of a consumer's answer.
const maxNote = 1024

// clip returns at most n characters of s.
func clip(s string, n int) string {
	for i := range s {
		if n == 0 {
			return s[:i]
		}
		n--
	}
	return s
}

// note returns s as a stored error text: valid UTF-8 of at most maxNote bytes.
func note(s string) []byte { return noteOf(s, maxNote) }

// noteOf is note for another bound.
func noteOf(s string, most int) []byte {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) > most {
		s = s[:most]
		for len(s) > 0 { // remove an incomplete character
			if r, size := utf8.DecodeLastRuneInString(s); r != utf8.RuneError || size != 1 {
				break
			}
			s = s[:len(s)-1]
		}
	}
	return []byte(s)
}

// head returns the first maxNote bytes of b.
func head(b []byte) []byte { return blob(b)[:min(len(b), maxNote)] }

// cutTo returns s as UTF-8 of at most n bytes.
func cutTo(s string, n int) string { return strings.ToValidUTF8(s[:min(len(s), n)], "") }

// maxStateReason is the width of the column.
const maxStateReason = 512

func cutReason(reason string) string {
	if len(reason) <= maxStateReason {
		return reason
	}
	n := maxStateReason
	for n > 0 && !utf8.RuneStart(reason[n]) {
		n--
	}
	return reason[:n]
}
