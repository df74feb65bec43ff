package publish

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
	"unicode/utf8"

	"github.com/penstock-broker/penstock/internal/model/problem"
	"github.com/penstock-broker/penstock/internal/tool/jsonread"
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

// quoted reads a string with its quotes. It looks for the end alone: what is between them is unchecked.
func (r *lineReader) quoted() ([]byte, error) {
	start := r.At
	if !r.Take('"') {
		return nil, errLine
	}
	for {
		n := bytes.IndexByte(r.Text[r.At:], '"')
		if n < 0 {
			return nil, errLine
		}
		inside := r.Text[start+1 : r.At+n]
		r.At += n + 1
		if escapes := len(inside) - len(bytes.TrimRight(inside, `\`)); escapes%2 == 0 {
			return r.Text[start:r.At], nil
		}
	}
}

// text reads a string, see unquote.
func (r *lineReader) text() ([]byte, error) {
	quoted, err := r.quoted()
	if err != nil {
		return nil, err
	}
	return unquote(quoted)
}

// unquote returns the text of a string. A string without escapes is not checked for UTF-8, and the
// result is then a part of it; any other is read once, by jsontext.
func unquote(quoted []byte) ([]byte, error) {
	text := quoted[1 : len(quoted)-1]
	if bytes.IndexByte(text, '\\') < 0 {
		if hasControl(text) {
			return nil, errLine
		}
		return text, nil
	}
	text, err := jsonread.AppendUnquoted(make([]byte, 0, len(quoted)), quoted)
	switch {
	case errors.Is(err, jsonread.ErrUTF8):
		return nil, errLineText
	case errors.Is(err, jsonread.ErrSurrogate):
		return nil, errSurrogate
	case err != nil:
		return nil, errLine
	case cap(text) > 2*len(text): // escapes of six bytes; the memory is counted by what is in it
		text = bytes.Clone(text)
	}
	return text, nil
}

// hasControl reports whether a text has a byte below 0x20. It takes eight at a time: one at a time would
// be a third of what a line costs.
func hasControl(text []byte) bool {
	const each, high = 0x2020202020202020, 0x8080808080808080
	for ; len(text) >= 8; text = text[8:] {
		if eight := binary.LittleEndian.Uint64(text); (eight-each)&^eight&high != 0 {
			return true
		}
	}
	return slices.ContainsFunc(text, func(c byte) bool { return c < 0x20 })
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
