package main

import (
	"slices"
	"strconv"
	"strings"
)

// An items is a set of sentences: what a document says, or what traffic has.
type items map[string]bool

func (i items) add(parts ...string) { i[strings.Join(parts, " ")] = true }

// said returns what the document says. Codes of a route are in a set of their own.
func (d *document) said() (all, codes items) {
	all, codes = items{}, items{}
	for path, methods := range d.Paths {
		for method, op := range methods {
			d.saidOf(strings.ToUpper(method)+" "+path, op, all, codes)
		}
	}
	for status, r := range d.Components.Responses {
		for name := range r.Headers {
			all.add("a problem", status, "with", name)
		}
		for name, m := range r.Content {
			all.add("a problem", status, "as", name)
			d.membersOf(m.Schema, "a problem "+status, all)
		}
	}
	for name, s := range d.Components.Schemas {
		d.membersOf(s, name, all)
	}
	for _, c := range d.Codes {
		all.add("code", strconv.Itoa(c.Status), c.Code)
	}
	return all, codes
}

func (d *document) saidOf(route string, op *operation, all, codes items) {
	all.add(route)
	for _, p := range op.Parameters {
		if p.In != "path" {
			all.add(route, "takes", p.In, p.Name)
		}
	}
	if op.Body != nil {
		for name, m := range op.Body.Content {
			all.add(route, "takes", name)
			d.membersOf(m.Schema, route+" takes "+name, all)
		}
	}
	for status, r := range op.Responses {
		if r.Ref != "" {
			continue // a problem: its codes tell
		}
		where := route + " answers " + status
		all.add(where)
		for name := range r.Headers {
			all.add(where, "with", name)
		}
		for name, m := range r.Content {
			all.add(where, "as", name)
			d.membersOf(m.Schema, where, all)
		}
	}
	for _, c := range op.Codes {
		codes.add(route, "answers", c)
	}
}

// without returns the sentences of i that others lacks.
func (i items) without(others items) (out []string) {
	for one := range i {
		if !others[one] {
			out = append(out, one)
		}
	}
	slices.Sort(out)
	return out
}
