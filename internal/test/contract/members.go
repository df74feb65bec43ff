package main

import (
	"encoding/json"
	"slices"
	"strings"
)

// membersOf adds the members that a schema has, as "member Job.ID". Those of a schema without name are of where it
// stands. A schema that it refers to is added under its own name elsewhere.
func (d *document) membersOf(s *schema, where string, all items) {
	if s == nil || s.Ref != "" {
		return
	}
	for name, of := range s.Properties {
		if !s.narrows() {
			all.add("member", where+"."+name)
			d.membersOf(of, where+"."+name, all)
		}
	}
	d.membersOf(s.Items, where, all)
	d.membersOf(s.values(), where, all)
	for _, one := range slices.Concat(s.OneOf, s.AllOf, s.AnyOf) {
		d.membersOf(one, where, all)
	}
}

// narrows reports whether the members of a schema are those of another one that it names: it says more of them.
func (s *schema) narrows() bool {
	return slices.ContainsFunc(s.AllOf, func(one *schema) bool { return one.Ref != "" })
}

// values returns the schema of members without names, nil for none.
func (s *schema) values() *schema {
	var of schema
	if len(s.Values) == 0 || s.Values[0] != '{' || json.Unmarshal(s.Values, &of) != nil {
		return nil
	}
	return &of
}

// A walker adds the members of bodies to all.
type walker struct {
	*document
	all  items
	fold bool // the names count in any case of letters, as those of requests
}

// A body in JSON is compared with its schema by walk. It adds the members that are there, also those that no schema
// has: the validator does not see them where schemas are joined.
func (w walker) walk(v any, s *schema, where string) {
	of, name := w.resolve(s)
	if name != "" {
		where = name
	}
	if of == nil {
		return
	}
	switch v := v.(type) {
	case []any:
		for _, one := range v {
			for _, items := range w.parts(of) {
				if items.Items != nil {
					w.walk(one, items.Items, where)
				}
			}
		}
	case map[string]any:
		w.walkObject(v, of, where)
	}
}

func (w walker) walkObject(v map[string]any, of *schema, where string) {
	parts := w.parts(of)
	for name, one := range v {
		known, free := false, true
		for _, p := range parts {
			at := where
			if p.name != "" {
				at = p.name
			}
			if spelled, ok := p.member(name, w.fold); ok {
				known = true
				if !p.narrows() {
					w.all.add("member", at+"."+spelled)
				}
				w.walk(one, p.Properties[spelled], at+"."+spelled)
			}
			free = free && p.Properties == nil
			if values := p.values(); values != nil {
				known = true
				w.walk(one, values, at)
			}
		}
		if !known && !free {
			w.all.add("member", where+"."+name)
		}
	}
}

// member returns the spelling that a schema has for a member; fold: in any case of letters.
func (s *schema) member(name string, fold bool) (string, bool) {
	if _, ok := s.Properties[name]; ok || !fold {
		return name, ok
	}
	for spelled := range s.Properties {
		if strings.EqualFold(spelled, name) {
			return spelled, true
		}
	}
	return "", false
}

// A part is one of the schemas that make a schema, with its name.
type part struct {
	*schema
	name string
}

// parts returns a schema with those that it is joined of.
func (d *document) parts(s *schema) (out []part) {
	var add func(s *schema)
	add = func(s *schema) {
		of, name := d.resolve(s)
		if of == nil {
			return
		}
		out = append(out, part{of, name})
		for _, one := range slices.Concat(of.OneOf, of.AllOf, of.AnyOf) {
			add(one)
		}
	}
	add(s)
	return out
}
