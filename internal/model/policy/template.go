package policy

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/valyala/fasttemplate"
)

// A Template is a text with places {{...}}, as Fill fills them.
type Template string

// The bounds of templates, bytes and places.
const (
	mostSubject, mostText = 256, 4096
	mostPlaces            = 64
	mostDepth             = 16 // of a member of the payload
)

const (
	defaultSubject Template = "{{channel}}: {{messageID}}"
	defaultBody    Template = "{{payload}}"
)

const placeBegin, placeEnd = "{{", "}}"

// payloadPlace begins the places that name a member of the payload.
const payloadPlace = "payload."

// places are the others.
var places = []string{"payload", "channel", "consumer", "producer", "messageID", "job", "attempt", "contentType"}

func parseSubject(text string) (Template, error) {
	if strings.ContainsFunc(text, unicode.IsControl) {
		return "", errors.New("must not contain control characters or more than one line")
	}
	return parseTemplate(text, mostSubject)
}

func parseText(text string) (Template, error) {
	refused := func(r rune) bool { return unicode.IsControl(r) && !strings.ContainsRune("\r\n\t", r) }
	if strings.ContainsFunc(text, refused) {
		return "", errors.New("must not contain control characters other than ends of lines and tabs")
	}
	return parseTemplate(text, mostText)
}

func parseTemplate(text string, most int) (Template, error) {
	switch {
	case len(text) > most:
		return "", fmt.Errorf("may have at most %d bytes", most)
	case !utf8.ValidString(text):
		return "", errors.New("must be UTF-8")
	case strings.Count(text, placeBegin) > mostPlaces:
		return "", fmt.Errorf("may have at most %d places", mostPlaces)
	}
	var wrong error
	_, err := fasttemplate.ExecuteFunc(text, placeBegin, placeEnd, io.Discard, func(_ io.Writer, tag string) (int, error) {
		tag = strings.TrimSpace(tag)
		path, ok := strings.CutPrefix(tag, payloadPlace)
		names := strings.Split(path, ".")
		switch {
		case wrong != nil:
		case ok && len(names) > mostDepth:
			wrong = fmt.Errorf("has a place with a member at a depth of more than %d", mostDepth)
		case ok && slices.Contains(names, ""), !ok && !slices.Contains(places, tag):
			wrong = errors.New("has a place that is none of {{payload}}, {{payload.MEMBER}} and {{" +
				strings.Join(places[1:], "}}, {{") + "}}")
		}
		return 0, nil
	})
	if err != nil || strings.Count(text, placeBegin) != strings.Count(text, placeEnd) {
		return "", errors.New("has a {{ without }}")
	}
	return Template(text), wrong
}

// String is the inverse of the parsers.
func (t Template) String() string { return string(t) }

var errFull = errors.New("the template is filled")

// Fill returns the text with each place replaced by its value, and whether it was cut off after most bytes.
// value gets the name of the place: one of places, or "payload" with the path of a member. It returns text.
func (t Template) Fill(most int, value func(place string, path []string) string) (text string, cut bool) {
	var out bounded
	out.left = most
	_, err := fasttemplate.ExecuteFunc(string(t), placeBegin, placeEnd, &out, func(w io.Writer, tag string) (int, error) {
		tag = strings.TrimSpace(tag)
		if path, ok := strings.CutPrefix(tag, payloadPlace); ok {
			return io.WriteString(w, value("payload", strings.Split(path, ".")))
		}
		return io.WriteString(w, value(tag, nil))
	})
	return strings.ToValidUTF8(out.String(), ""), err != nil
}

// bounded is a text of so many bytes.
type bounded struct {
	strings.Builder
	left int
}

func (b *bounded) Write(p []byte) (int, error) {
	n := min(len(p), b.left)
	b.left -= n
	_, _ = b.Builder.Write(p[:n])
	if n < len(p) {
		return n, errFull
	}
	return n, nil
}

// WriteString hides that of the Builder, which has no bound.
func (b *bounded) WriteString(s string) (int, error) { return b.Write([]byte(s)) }
