package cause

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	// longest is how much of a normal text counts, in bytes, and examined how much of an error.
	longest  = 200
	examined = 4 << 10
	// replaced stands for what differs from one failure to the next.
	replaced = '#'
)

// Normal returns the text of an error without digits, hexadecimal numbers, UUIDs and quoted texts, each
// of which is one "#", cut to 200 bytes. Numbers that a dot, a comma or a colon joins are one: an IP
// address with its port, a time, a fraction. What is replaced does not count for the cut, so that errors
// which differ in nothing else are the same.
func Normal(text string) string {
	n := normaliser{rest: strings.TrimSpace(text[:min(len(text), examined)])}
	for n.rest != "" && n.out.Len() < longest {
		n.step()
	}
	out := n.out.String()
	end := min(len(out), longest)
	for end < len(out) && !utf8.RuneStart(out[end]) {
		end--
	}
	return strings.TrimSpace(out[:end])
}

// A normaliser makes a normal text.
type normaliser struct {
	rest string
	out  strings.Builder
	last rune // written; 0: none
}

func (n *normaliser) write(r rune) {
	if r == n.last && (r == replaced || r == ' ') {
		return
	}
	n.out.WriteRune(r)
	n.last = r
}

// step writes what the rest begins with.
func (n *normaliser) step() {
	r, size := utf8.DecodeRuneInString(n.rest)
	switch {
	case isDigit(n.rest[0]), isLetter(n.rest[0]):
		n.word()
	case n.quoted(r, size):
	case unicode.IsSpace(r), unicode.IsControl(r):
		n.write(' ')
		n.rest = n.rest[size:]
	default:
		n.write(r)
		n.rest = n.rest[size:]
	}
}

// word writes letters and digits.
func (n *normaliser) word() {
	if isUUID(n.rest) {
		n.write(replaced)
		n.rest = n.rest[uuidLength:]
		return
	}
	end := 0
	for end < len(n.rest) && (isDigit(n.rest[end]) || isLetter(n.rest[end])) {
		end++
	}
	word := n.rest[:end]
	if isHex(word) {
		n.write(replaced)
		n.rest = n.rest[end:]
		return
	}
	for i := 0; i < end; i++ {
		if isDigit(word[i]) {
			n.write(replaced)
			n.rest = afterNumber(n.rest[i:])
			return
		}
		n.write(rune(word[i]))
	}
	n.rest = n.rest[end:]
}

// afterNumber returns the text behind the numbers that it begins with.
func afterNumber(text string) string {
	for {
		i := 0
		for i < len(text) && isDigit(text[i]) {
			i++
		}
		text = text[i:]
		if len(text) < 2 || !strings.ContainsRune(".,:", rune(text[0])) || !isDigit(text[1]) {
			return text
		}
		text = text[1:]
	}
}

// quotes are the marks that begin a quoted text, with those that end it.
var quotes = map[rune]rune{'"': '"', '`': '`', '\'': '\'', '“': '”', '‘': '’', '«': '»', '„': '“'}

// quoted replaces a quoted text. An apostrophe begins one only where a word may begin, and ends one only
// where a word may end. A text whose end is cut off goes on to the end.
func (n *normaliser) quoted(open rune, size int) bool {
	end, ok := quotes[open]
	apostrophe := open == '\'' || open == '‘'
	if !ok || apostrophe && (unicode.IsLetter(n.last) || n.last == replaced) {
		return false
	}
	escaped := false
	for i := size; i < len(n.rest); {
		r, width := utf8.DecodeRuneInString(n.rest[i:])
		i += width
		switch {
		case escaped:
			escaped = false
		case r == '\\':
			escaped = true
		case r == end && !(apostrophe && i < len(n.rest) && (isDigit(n.rest[i]) || isLetter(n.rest[i]))):
			n.write(replaced)
			n.rest = n.rest[i:]
			return true
		}
	}
	if apostrophe {
		return false
	}
	n.write(replaced)
	n.rest = ""
	return true
}

const uuidLength = 36

// isUUID reports whether a text begins with a UUID.
func isUUID(text string) bool {
	if len(text) < uuidLength || len(text) > uuidLength && (isDigit(text[uuidLength]) || isLetter(text[uuidLength])) {
		return false
	}
	for i := range uuidLength {
		if dash := i == 8 || i == 13 || i == 18 || i == 23; dash != (text[i] == '-') || !dash && !isHexDigit(text[i]) {
			return false
		}
	}
	return true
}

// hexWord is the length from which a word of the letters a to f is a number: English ones are shorter.
const hexWord = 8

// isHex reports whether a word is a hexadecimal number and no decimal one.
func isHex(word string) bool {
	if len(word) > 2 && (word[:2] == "0x" || word[:2] == "0X") {
		return strings.IndexFunc(word[2:], func(r rune) bool { return !isHexDigit(byte(r)) }) < 0
	}
	digits, letters := 0, 0
	for i := range len(word) {
		switch {
		case isDigit(word[i]):
			digits++
		case isHexDigit(word[i]):
			letters++
		default:
			return false
		}
	}
	return letters > 0 && digits > 0 || letters >= hexWord
}

func isDigit(c byte) bool  { return '0' <= c && c <= '9' }
func isLetter(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' }
func isHexDigit(c byte) bool {
	return isDigit(c) || 'a' <= c|0x20 && c|0x20 <= 'f'
}
