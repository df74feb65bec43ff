// Package jsonread reads the JSON of requests from memory, part by part: nothing is built for a value
// that the caller does not take. It refuses what two readers may read differently, as RFC 7493 has
// it: text that is not UTF-8, and half of a surrogate pair. Names that occur twice are for the caller,
// who knows its members and in which cases of letters they count; Check finds them in any text. Values
// may be nested 10 000 deep.
package jsonread

import (
	"bytes"
	"cmp"
	"errors"
	"io"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// An Error is what is wrong with a text. Reason follows its name: "The body is not UTF-8". An error
// without a Reason is told best by the form that the caller expects.
type Error struct{ Reason string }

func (e *Error) Error() string { return "jsonread: the text " + cmp.Or(e.Reason, "has another form") }

// The errors of a Reader. ErrForm is one of the syntax, or of a value of another type.
var (
	ErrForm      = &Error{}
	ErrUTF8      = &Error{"is not UTF-8"}
	ErrSurrogate = &Error{`has half of a surrogate pair (\ud800 to \udfff), which is no character`}
)

// Reason returns the Reason of an error, "" where it has none.
func Reason(err error) string {
	var e *Error
	if errors.As(err, &e) {
		return e.Reason
	}
	return ""
}

// Options of the readers. A decoder that finds repeated names remembers all, in about ten times the
// memory of the text. With lax it leaves strings to whoever takes them.
var (
	repeated = []jsontext.Options{jsontext.AllowDuplicateNames(true)}
	lax      = append(repeated, jsontext.AllowInvalidUTF8(true))
)

// A Reader reads one JSON value. What it returns is a part of the text wherever it can be.
type Reader struct {
	text   []byte
	buffer bytes.Buffer
	dec    jsontext.Decoder
}

var readers = sync.Pool{New: func() any { return new(Reader) }}

// Open returns a reader of a text, which must not change before Close.
func Open(text []byte) *Reader { return open(text, repeated) }

// OpenCarried is Open for a text of UTF-8 with values that the broker only carries. Halves of surrogate
// pairs are refused only in strings that Text and Unquote return.
func OpenCarried(text []byte) *Reader { return open(text, lax) }

func open(text []byte, options []jsontext.Options) *Reader {
	r := readers.Get().(*Reader)
	r.text, r.buffer = text, *bytes.NewBuffer(text)
	r.dec.Reset(&r.buffer, options...)
	return r
}

// Close ends the use of the reader, not of what it returned.
func (r *Reader) Close() {
	r.text, r.buffer = nil, bytes.Buffer{}
	r.dec.Reset(&r.buffer)
	readers.Put(r)
}

// Kind returns the first byte of the next value, '0' for each number. It is 0 at an error or the end.
func (r *Reader) Kind() byte { return byte(r.dec.PeekKind()) }

// Object reads an object. It calls member with each name, and member reads the value.
func (r *Reader) Object(member func(name []byte) error) error {
	if err := r.begin('{'); err != nil {
		return err
	}
	for r.Kind() != '}' {
		name, err := r.Value()
		if err == nil {
			name, err = Unquote(name)
		}
		if err == nil {
			err = member(name)
		}
		if err != nil {
			return err
		}
	}
	_, err := r.dec.ReadToken()
	return r.refusal(err)
}

// Array reads an array. It calls element for each element, and element reads it.
func (r *Reader) Array(element func() error) error {
	if err := r.begin('['); err != nil {
		return err
	}
	for r.Kind() != ']' {
		if r.Kind() == 0 {
			return r.wrong()
		}
		if err := element(); err != nil {
			return err
		}
	}
	_, err := r.dec.ReadToken()
	return r.refusal(err)
}

func (r *Reader) begin(kind byte) error {
	if r.Kind() != kind {
		return r.wrong()
	}
	_, err := r.dec.ReadToken()
	return r.refusal(err)
}

// Value reads a value of any type and returns its text.
func (r *Reader) Value() ([]byte, error) {
	value, err := r.dec.ReadValue()
	return value, r.refusal(err)
}

// Text reads a string.
func (r *Reader) Text() ([]byte, error) {
	if r.Kind() != '"' {
		return nil, r.wrong()
	}
	value, err := r.Value()
	if err != nil {
		return nil, err
	}
	return Unquote(value)
}

// Int reads an integer that is written as one.
func (r *Reader) Int() (int64, error) {
	if r.Kind() != '0' {
		return 0, r.wrong()
	}
	value, err := r.Value()
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseInt(string(value), 10, 64)
	if err != nil {
		return 0, ErrForm
	}
	return n, nil
}

// Bool reads true or false.
func (r *Reader) Bool() (bool, error) {
	if kind := r.Kind(); kind != 't' && kind != 'f' {
		return false, r.wrong()
	}
	value, err := r.Value()
	return string(value) == "true", err
}

// Null skips null if it is next, and reports whether it was.
func (r *Reader) Null() bool {
	if r.Kind() != 'n' {
		return false
	}
	_, err := r.dec.ReadValue()
	return err == nil
}

// End reads the end of the text.
func (r *Reader) End() error {
	if _, err := r.dec.ReadToken(); !errors.Is(err, io.EOF) {
		return r.wrong()
	}
	return nil
}

// wrong is the error at a value of another type than expected.
func (r *Reader) wrong() error {
	if _, err := r.dec.ReadValue(); err != nil {
		return r.refusal(err)
	}
	return ErrForm
}

// refusal returns the error of a text that the decoder refuses. Its kind is found anew: the decoder
// has no names for them.
func (r *Reader) refusal(err error) error {
	switch {
	case err == nil:
		return nil
	case !utf8.Valid(r.text):
		return ErrUTF8
	case jsontext.Value(r.text).IsValid(lax...):
		return ErrSurrogate
	}
	return ErrForm
}

// Unquote returns the text of a JSON string.
func Unquote(value []byte) ([]byte, error) {
	if bytes.IndexByte(value, '\\') < 0 {
		return value[1 : len(value)-1], nil
	}
	return AppendUnquoted(nil, value)
}

// AppendUnquoted appends the text of what is between the quotes of a JSON string, and the quotes.
func AppendUnquoted(b, value []byte) ([]byte, error) {
	b, err := jsontext.AppendUnquote(b, value)
	switch {
	case err == nil:
		return b, nil
	case !utf8.Valid(value):
		return b, ErrUTF8
	case jsontext.Value(value).IsValid(lax...):
		return b, ErrSurrogate
	}
	return b, ErrForm
}

// Bounds of a text that Check takes, far above what a request has: the names of its open objects take
// memory.
const (
	mostDepth   = 16
	mostMembers = 1024
)

var errLarge = &Error{"has too many members or levels"}

// Check refuses a text that is not one JSON value, and one with a name that occurs twice in an object,
// in whatever case of letters: encoding/json, which is to build values of the text, takes either.
func Check(text []byte) error {
	r := Open(text)
	defer r.Close()
	var names [mostDepth + 1]map[string]bool // of the open objects, folded
	for {
		token, err := r.dec.ReadToken()
		depth := r.dec.StackDepth()
		kind, n := r.dec.StackIndex(depth)
		switch inObject := kind == '{'; {
		case errors.Is(err, io.EOF) && n == 1:
			return nil
		case errors.Is(err, io.EOF):
			return ErrForm
		case err != nil:
			return r.refusal(err)
		case depth > mostDepth, inObject && n > 2*mostMembers:
			return errLarge
		case inObject && n == 0:
			names[depth] = map[string]bool{}
		case inObject && n%2 == 1:
			name := token.String()
			folded := strings.ToLower(strings.ToUpper(name))
			if names[depth][folded] {
				return &Error{"has the member " + strconv.QuoteToASCII(name[:min(len(name), longestName)]) + " twice"}
			}
			names[depth][folded] = true
		}
	}
}

// longestName bounds the part of a name that an error shows, bytes.
const longestName = 64
