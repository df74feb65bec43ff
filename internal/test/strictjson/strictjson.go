// Package strictjson compares JSON texts with the structs that describe them, in both directions:
// a text has no member that its struct lacks, and each member of the struct occurs in some text.
package strictjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

// Decode requires that Check has no error.
func Decode(t testing.TB, text []byte, v any) {
	t.Helper()
	require.NoError(t, Check(text, v))
}

// Check decodes text, one JSON value, into v, a pointer to a new struct. It returns an error
// unless the text is UTF-8, and v encodes to the same members with the same values in the same
// order. So the text has no other member, none twice and none in another case. Only white space,
// the spelling of strings and the order inside of maps may differ.
func Check(text []byte, v any) error {
	if !utf8.Valid(text) {
		return fmt.Errorf("not UTF-8: %.1000q", text)
	}
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		return fmt.Errorf("%w: %.1000q", err, text)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("more than one value: %.1000q", text)
	}
	encoded, err := json.Marshal(v)
	if err != nil {
		return err
	}
	var compact bytes.Buffer
	if json.Compact(&compact, text) == nil && bytes.Equal(compact.Bytes(), encoded) {
		return nil // as most answers: the comparison below takes many times the time
	}
	typ := reflect.TypeOf(v)
	got, want := canonical(typ, text), canonical(typ, encoded)
	for i := range max(len(got), len(want)) {
		if i >= len(got) || i >= len(want) || got[i] != want[i] {
			return fmt.Errorf("%v has %.1000q, the text has %.1000q", typ, want[i:min(i+1, len(want))],
				got[i:min(i+1, len(got))])
		}
	}
	return nil
}

// canonical returns names and values of a valid text of that type in one spelling.
func canonical(typ reflect.Type, text []byte) []string {
	for typ.Kind() == reflect.Pointer {
		typ = typ.Elem()
	}
	if typ == reflect.TypeFor[json.RawMessage]() { // JSON of any type
		return []string{string(text)}
	}
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	token, _ := dec.Token()
	open, isOpen := token.(json.Delim)
	if !isOpen {
		return []string{fmt.Sprintf("%T %q", token, token)}
	}
	var parts [][]string
	for dec.More() {
		var part []string
		of := typ
		if open == '{' {
			name, _ := dec.Token()
			of = memberType(typ, name.(string))
			part = append(part, fmt.Sprintf("%q:", name))
		} else {
			of = typ.Elem()
		}
		var value json.RawMessage
		_ = dec.Decode(&value)
		parts = append(parts, append(part, canonical(of, value)...))
	}
	if typ.Kind() == reflect.Map {
		slices.SortFunc(parts, slices.Compare[[]string])
	}
	return slices.Concat([]string{open.String()}, slices.Concat(parts...), []string{"end"})
}

// memberType returns the type of a member of a struct or map.
func memberType(typ reflect.Type, member string) reflect.Type {
	if typ.Kind() == reflect.Map {
		return typ.Elem()
	}
	for _, field := range reflect.VisibleFields(typ) {
		if !field.Anonymous && strings.EqualFold(Name(field), member) {
			return field.Type
		}
	}
	panic("no member " + member) // Check has refused it
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

// walk calls f with each member of the structs in t, and whether v, JSON of that type, has it. within are
// the structs around: one that contains itself ends where v does.
func walk(t reflect.Type, v any, f func(member string, has bool), within ...reflect.Type) {
	switch {
	case t.Kind() == reflect.Pointer:
		walk(t.Elem(), v, f, within...)
	case t.Implements(marshaler): // a text
	case t.Kind() == reflect.Slice:
		elements, _ := v.([]any)
		for _, e := range append(elements, nil) {
			walk(t.Elem(), e, f, within...)
		}
	case t.Kind() == reflect.Struct:
		object, _ := v.(map[string]any)
		if object == nil && slices.Contains(within, t) {
			return
		}
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
			walk(field.Type, member, f, append(slices.Clip(within), t)...)
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
