package main

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/penstock-broker/penstock/internal/model/apitype"
)

// schemas collects the schemas of the structs that bodies have.
type schemas struct {
	comments comments
	byName   map[string]object
	strict   map[string]bool // of requests: another member is refused
}

func newSchemas(c comments) *schemas {
	return &schemas{c, map[string]object{}, map[string]bool{}}
}

// of returns the schema of a struct, and of the structs in it. strict is that of a request.
func (s *schemas) of(v any, strict bool) object { return s.typed(reflect.TypeOf(v), strict) }

// typed returns the schema of a type. Structs are referred to by their names.
func (s *schemas) typed(t reflect.Type, strict bool) object {
	switch t {
	case reflect.TypeFor[time.Time](), reflect.TypeFor[apitype.Time]():
		return object{{"type", "string"}, {"format", "date-time"}}
	case reflect.TypeFor[apitype.Text]():
		return anyOf("string", "number")
	case reflect.TypeFor[[]byte]():
		return object{{"type", "string"}, {"contentEncoding", "base64"}}
	case reflect.TypeFor[struct{}]():
		return object{{"type", "null"}}
	case reflect.TypeFor[json.RawMessage]():
		return object{}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return s.typed(t.Elem(), strict)
	case reflect.String:
		return object{{"type", "string"}}
	case reflect.Bool:
		return object{{"type", "boolean"}}
	case reflect.Int, reflect.Int64, reflect.Uint32, reflect.Uint64:
		return object{{"type", "integer"}}
	case reflect.Float64:
		return object{{"type", "number"}}
	case reflect.Slice:
		return object{{"type", "array"}, {"items", s.typed(t.Elem(), strict)}}
	case reflect.Map:
		return object{{"type", "object"}, {"additionalProperties", s.typed(t.Elem(), strict)}}
	case reflect.Struct:
		s.define(t, strict)
		return reference("schemas", t.Name())
	}
	panic(fmt.Sprintf("no schema of %v", t))
}

// define adds the schema of a struct, unless it is there already.
func (s *schemas) define(t reflect.Type, strict bool) {
	if strict {
		s.strict[t.Name()] = true
	}
	if s.byName[t.Name()] != nil {
		return
	}
	s.byName[t.Name()] = object{} // it may contain itself
	var properties object
	required := []string{}
	for _, f := range fieldsOf(t) {
		name, optional := memberOf(f.StructField)
		schema := s.typed(f.Type, strict)
		if f.Type.Kind() == reflect.Pointer && !optional && f.Type.Elem() != reflect.TypeFor[struct{}]() {
			schema = orNull(schema)
		}
		schema = described(schema, s.comments.member(f.owner, f.Name))
		if slices.ContainsFunc(properties, func(m member) bool { return strings.EqualFold(m.name, name) }) {
			schema.add("x-go-name", f.Name) // names of Go begin with a capital letter: two of these would be one
		}
		properties.add(name, schema)
		if !optional {
			required = append(required, name)
		}
	}
	out := object{{"type", "object"}}
	out.addText("description", s.comments.typed(t.Name()))
	out.add("properties", properties)
	if len(required) > 0 {
		out.add("required", required)
	}
	s.byName[t.Name()] = out
}

// all returns the schemas in the order of their names.
func (s *schemas) all() (out object) {
	var names []string
	for name := range s.byName {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		schema := s.byName[name]
		if s.strict[name] {
			schema = append(slices.Clone(schema), member{"additionalProperties", false})
		}
		out.add(name, schema)
	}
	return out
}

// A field is a field of a struct or of one that is embedded in it.
type field struct {
	reflect.StructField
	owner string // name of the struct that declares it
}

// fieldsOf returns the fields that have members, in the order of the wire.
func fieldsOf(t reflect.Type) (out []field) {
	for i := range t.NumField() {
		f := t.Field(i)
		if f.Anonymous {
			out = append(out, fieldsOf(f.Type)...)
			continue
		}
		out = append(out, field{f, t.Name()})
	}
	return out
}

// memberOf returns the name of a field in JSON or in a form, and whether it may be absent.
func memberOf(f reflect.StructField) (name string, optional bool) {
	if name := f.Tag.Get("form"); name != "" {
		return name, true
	}
	name, rest, _ := strings.Cut(f.Tag.Get("json"), ",")
	return name, strings.Contains(rest, "omitempty")
}

// orNull returns a schema that also takes null.
func orNull(schema object) object {
	if name, ok := schema[0].value.(string); ok && schema[0].name == "type" {
		return append(object{{"type", []string{name, "null"}}}, schema[1:]...)
	}
	return object{{"oneOf", []object{schema, {{"type", "null"}}}}}
}

// described adds a description. A reference is wrapped: many tools do not read what stands beside it.
func described(schema object, text string) object {
	out := slices.Clone(schema)
	if text != "" && len(out) > 0 && out[0].name == "$ref" {
		out = object{{"allOf", []object{schema}}}
	}
	out.addText("description", text)
	return out
}

// document returns the schema of the JSON that a PUT takes instead of a form: the fields of the form, under the
// names that GET shows where it shows them, and what else GET shows, which is read and ignored.
func (s *schemas) document(form, view any) object {
	shown := fieldsOf(reflect.TypeOf(view))
	f := reflect.TypeOf(form)
	settings := fieldsOf(reflect.TypeFor[apitype.Policy]())
	var properties, policy object
	for _, of := range fieldsOf(f) {
		name, _ := memberOf(of.StructField)
		text := s.comments.member(of.owner, of.Name)
		at := slices.IndexFunc(settings, func(p field) bool { return strings.EqualFold(p.Name, name) })
		if at >= 0 && f == reflect.TypeFor[apitype.ConsumerForm]() {
			member := described(asText(), s.comments.member("Policy", settings[at].Name))
			policy.add(settings[at].Name, member)
			properties.add(settings[at].Name, object{member[0], {"description", "as in Policy"}})
			continue
		}
		name = strings.ToUpper(name[:1]) + name[1:]
		if at := slices.IndexFunc(shown, func(v field) bool { return strings.EqualFold(v.Name, name) }); at >= 0 {
			name = shown[at].Name
		}
		properties.add(name, described(asText(), text))
	}
	if policy != nil {
		properties.add("Policy", object{{"type", []string{"object", "null"}}, {"properties", policy},
			{"additionalProperties", false}, {"description", "The policy. Its members may also stand beside it."}})
	}
	for _, v := range shown {
		if !slices.ContainsFunc(properties, func(m member) bool { return m.name == v.Name }) {
			properties.add(v.Name, object{{"description", "as GET shows it; it changes nothing"}})
		}
	}
	return object{{"type", "object"}, {"properties", properties}, {"description",
		"Names count in any case of letters. A member that is absent or null keeps its value."}}
}

// asText is the schema of a value that a form has as text.
func asText() object { return anyOf("string", "number", "boolean", "null") }

// anyOf is the schema of a value of one of these types. A list of types says the same, and stops generators of
// clients.
func anyOf(types ...string) object {
	var all []object
	for _, name := range types {
		all = append(all, object{{"type", name}})
	}
	return object{{"anyOf", all}}
}
