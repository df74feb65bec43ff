package openapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// A document is what the pages show of openapi.json.
type document struct {
	Tags       []tag                       `json:"tags"`
	Paths      ordered[ordered[operation]] `json:"paths"`
	Codes      []Code                      `json:"x-codes"`
	Components struct {
		Schemas ordered[schema] `json:"schemas"`
	} `json:"components"`
}

// A Code is a code of an error.
type Code struct {
	Status int    `json:"status"`
	Code   string `json:"code"`
	When   string `json:"when"` // with code in backquotes
}

type tag struct {
	Name        string   `json:"name"`
	Description string   `json:"description"`
	Docs        location `json:"externalDocs"`
}

type location struct {
	URL string `json:"url"`
}

type operation struct {
	ID         string              `json:"operationId"`
	Summary    string              `json:"summary"`
	Tags       []string            `json:"tags"`
	Docs       location            `json:"externalDocs"`
	Parameters []parameter         `json:"parameters"`
	Body       *body               `json:"requestBody"`
	Responses  ordered[response]   `json:"responses"`
	Security   []map[string][]bool `json:"security"`
	Access     string              `json:"x-access"`
	Codes      []string            `json:"x-codes"`
}

type parameter struct {
	Name        string `json:"name"`
	In          string `json:"in"`
	Description string `json:"description"`
	Schema      schema `json:"schema"`
}

type body struct {
	Content ordered[media] `json:"content"`
}

type response struct {
	Description string           `json:"description"`
	Ref         string           `json:"$ref"`
	Headers     ordered[content] `json:"headers"`
	Content     ordered[media]   `json:"content"`
}

type content struct {
	Description string `json:"description"`
}

type media struct {
	Schema  schema          `json:"schema"`
	Lines   *schema         `json:"x-lines"`
	Example json.RawMessage `json:"example"`
	Line    json.RawMessage `json:"x-example"`
}

type schema struct {
	Ref         string          `json:"$ref"`
	Type        any             `json:"type"`
	Format      string          `json:"format"`
	Enum        []string        `json:"enum"`
	Description string          `json:"description"`
	Properties  ordered[schema] `json:"properties"`
	Required    []string        `json:"required"`
	Items       *schema         `json:"items"`
	OneOf       []schema        `json:"oneOf"`
	AllOf       []schema        `json:"allOf"`
	AnyOf       []schema        `json:"anyOf"`
}

// Kind says in words what a value is.
func (s schema) Kind() string {
	switch {
	case s.Items != nil:
		return "list of " + s.Items.Kind()
	case s.Named() != "":
		return s.Named()
	case len(s.OneOf) > 0:
		return s.OneOf[0].Kind() + " or null"
	case len(s.AllOf) > 0:
		return s.AllOf[0].Kind()
	case len(s.AnyOf) > 0:
		kinds := make([]string, len(s.AnyOf))
		for i, one := range s.AnyOf {
			kinds[i] = one.Kind()
		}
		return strings.Join(kinds, " or ")
	case s.Format != "":
		return s.Format
	}
	switch t := s.Type.(type) {
	case string:
		return t
	case []any:
		var names []string
		for _, name := range t {
			names = append(names, fmt.Sprint(name))
		}
		return strings.Join(names, " or ")
	}
	return "any"
}

// Named returns the name of the schema that s refers to, "" where it is none.
func (s schema) Named() string { return s.Ref[strings.LastIndexByte(s.Ref, '/')+1:] }

// Inner returns the name of the schema that s, or an entry of it, refers to.
func (s schema) Inner() string {
	switch {
	case s.Items != nil:
		return s.Items.Inner()
	case len(s.OneOf) > 0:
		return s.OneOf[0].Inner()
	case len(s.AllOf) > 0:
		return s.AllOf[0].Inner()
	}
	return s.Named()
}

// Needs reports whether a member is always there.
func (s schema) Needs(member string) bool { return slices.Contains(s.Required, member) }

// An entry is a member of an object in JSON.
type entry[T any] struct {
	Name  string
	Value T
}

// An ordered is an object in JSON whose members keep their order.
type ordered[T any] []entry[T]

// UnmarshalJSON implements json.Unmarshaler.
func (o *ordered[T]) UnmarshalJSON(text []byte) error {
	d := json.NewDecoder(bytes.NewReader(text))
	if _, err := d.Token(); err != nil {
		return err
	}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return err
		}
		e := entry[T]{Name: fmt.Sprint(name)}
		if err := d.Decode(&e.Value); err != nil {
			return err
		}
		*o = append(*o, e)
	}
	return nil
}
