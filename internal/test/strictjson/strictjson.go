// Package strictjson compares JSON texts with the structs that describe them, in both directions:
// a text has no member that its struct lacks, and each member of the struct occurs in some text.
package strictjson

import (
	"bytes"
	"encoding/json"
	"io"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

// Decode decodes text, one JSON value, into v, a pointer to a new struct. It requires that the
// text is UTF-8, and that v encodes to the same members with the same values in the same order.
// So the text has no other member, none twice and none in another case. Only the spelling of
// strings, numbers and white space may differ. The members of maps must be sorted.
func Decode(t testing.TB, text []byte, v any) {
	t.Helper()
	require.True(t, utf8.Valid(text), "%q", text)
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	require.NoError(t, dec.Decode(v), "%.1000q", text)
	_, err := dec.Token()
	require.ErrorIs(t, err, io.EOF, "%.1000q", text)
	encoded, err := json.Marshal(v)
	require.NoError(t, err)
	require.Equal(t, canonical(t, encoded), canonical(t, text))
}

// canonical returns the tokens of a valid text in one spelling.
func canonical(t testing.TB, text []byte) string {
	t.Helper()
	var b strings.Builder
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	for {
		token, err := dec.Token()
		if err == io.EOF {
			return b.String()
		}
		require.NoError(t, err)
		if _, ok := token.(json.Delim); !ok {
			spelt, err := json.Marshal(token)
			require.NoError(t, err)
			token = string(spelt)
		}
		switch token := token.(type) {
		case json.Delim:
			b.WriteString(token.String())
		case string:
			b.WriteString(token)
		}
		b.WriteByte('\n')
	}
}

// Members is the set of members of structs, as "Job.ID", and whether a text has had them.
type Members map[string]bool

// Of returns all members of structs and of the structs in them.
func Of(values ...any) Members {
	m := Members{}
	for _, v := range values {
		walk(reflect.TypeOf(v), nil, func(member string, _ bool) { m[member] = false })
	}
	return m
}

// Decode decodes text into v, as the function Decode does, and notes its members.
func (m Members) Decode(t testing.TB, text []byte, v any) {
	t.Helper()
	Decode(t, text, v)
	var members any
	require.NoError(t, json.Unmarshal(text, &members))
	walk(reflect.TypeOf(v), members, func(member string, has bool) { m[member] = m[member] || has })
}

// Missing returns the members that no text has had.
func (m Members) Missing() (missing []string) {
	for member, seen := range m {
		if !seen {
			missing = append(missing, member)
		}
	}
	return missing
}

var marshaler = reflect.TypeFor[json.Marshaler]()

// walk calls f with each member of the structs in t, and whether v, JSON of that type, has it.
func walk(t reflect.Type, v any, f func(member string, has bool)) {
	switch {
	case t.Kind() == reflect.Pointer:
		walk(t.Elem(), v, f)
	case t.Implements(marshaler): // a text
	case t.Kind() == reflect.Slice:
		elements, _ := v.([]any)
		for _, e := range append(elements, nil) {
			walk(t.Elem(), e, f)
		}
	case t.Kind() == reflect.Struct:
		object, _ := v.(map[string]any)
		for _, field := range reflect.VisibleFields(t) {
			if field.Anonymous {
				continue
			}
			owner := t
			if outer := field.Index[:len(field.Index)-1]; len(outer) > 0 {
				owner = t.FieldByIndex(outer).Type
			}
			name := Name(field)
			member, has := object[name]
			f(owner.Name()+"."+name, has)
			walk(field.Type, member, f)
		}
	}
}

// Names returns the names of the members of a struct, or of the fields of a form.
func Names(v any) (names []string) {
	for _, field := range reflect.VisibleFields(reflect.TypeOf(v)) {
		if !field.Anonymous {
			names = append(names, Name(field))
		}
	}
	return names
}

// Name returns the name in the tag of a field, "" when it has none.
func Name(field reflect.StructField) string {
	tag, ok := field.Tag.Lookup("json")
	if !ok {
		tag = field.Tag.Get("form")
	}
	name, _, _ := strings.Cut(tag, ",")
	return name
}
