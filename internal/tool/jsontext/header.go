package jsontext

import "unicode/utf8"

// HeaderText returns the text of a header value. One that is not UTF-8 is converted byte by byte from
// Latin-1, which HTTP once allowed, so that no byte is lost. Every view and every filter sees a value
// in this form.
func HeaderText(value string) string {
	if utf8.ValidString(value) {
		return value
	}
	runes := make([]rune, len(value))
	for i := range len(value) {
		runes[i] = rune(value[i])
	}
	return string(runes)
}
