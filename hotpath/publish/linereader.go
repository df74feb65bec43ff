package publish

import (
	"bytes"
	"encoding/json"
	"unicode/utf8"

	"github.com/penstock-broker/penstock/internal/model/problem"
	"github.com/penstock-broker/penstock/internal/tool/jsontext"
)

// The refusals of a malformed line.
var (
	errSurrogate = problem.New(400, "invalid_line",
		`A string of the line holds half of a surrogate pair (\ud800 to \udfff), which is no character.`)
	errLineText = problem.New(400, "invalid_line", "A string of the line is not UTF-8.")
	errRepeated = problem.New(400, "invalid_line", "The line has a member twice.")
)

// longestQuote is the number of bytes of an unknown name that a refusal quotes.
const longestQuote = 64

// A lineReader reads JSON from memory.
type lineReader struct{ jsontext.Cursor }

func readerOf(line []byte) lineReader { return lineReader{jsontext.Cursor{Text: line}} }

func (r *lineReader) null() bool {
	if bytes.HasPrefix(r.Text[r.At:], []byte("null")) {
		r.At += 4
		return true
	}
	return false
}

// object reads an object. It calls member with the name of each member, and member reads the value.
// notOne is the error for a value that is not an object.
func (r *lineReader) object(notOne error, member func(name []byte) error) error {
	if r.Space(); !r.Take('{') {
		return notOne
	}
	if r.Space(); r.Take('}') {
		return nil
	}
	for {
		name, err := r.text()
		if err != nil {
			return err
		}
		if r.Space(); !r.Take(':') {
			return notOne
		}
		r.Space()
		if err := member(name); err != nil {
			return err
		}
		if r.Space(); r.Take('}') {
			return nil
		}
		if !r.Take(',') {
			return notOne
		}
		r.Space()
	}
}

// text reads a string. A string without escapes is not checked for UTF-8, and the result is then a
// part of the line.
func (r *lineReader) text() ([]byte, error) {
	if !r.Take('"') {
		return nil, errLine
	}
	start := r.At
	end := bytes.IndexByte(r.Text[start:], '"')
	if end < 0 {
		return nil, errLine
	}
	plain := r.Text[start : start+end]
	if bytes.IndexByte(plain, '\\') < 0 {
		r.At = start + end + 1
		for _, c := range plain {
			if c < 0x20 {
				return nil, errLine
			}
		}
		return plain, nil
	}
	for i := start; i < len(r.Text); i++ {
		switch r.Text[i] {
		case '\\':
			i++
		case '"':
			raw := r.Text[start-1 : i+1]
			if !utf8.Valid(raw) {
				return nil, errLineText // encoding/json would replace invalid UTF-8
			}
			var text string
			if err := json.Unmarshal(raw, &text); err != nil {
				return nil, errLine
			}
			if !jsontext.Paired(raw) { // encoding/json would also replace half of a surrogate pair
				return nil, errSurrogate
			}
			r.At = i + 1
			return []byte(text), nil
		}
	}
	return nil, errLine
}

// word reads a string and requires UTF-8.
func (r *lineReader) word() ([]byte, error) {
	text, err := r.text()
	if err == nil && !utf8.Valid(text) {
		err = errLineText
	}
	return text, err
}

// number reads up to the end of a number, which it does not check.
func (r *lineReader) number() []byte {
	start := r.At
	for r.At < len(r.Text) && bytes.IndexByte([]byte(",} \t\r\n"), r.Text[r.At]) < 0 {
		r.At++
	}
	return r.Text[start:r.At]
}
