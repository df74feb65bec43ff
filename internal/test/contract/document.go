package main

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
)

// A document is what this command reads of openapi.json.
type document struct {
	text       []byte
	Paths      map[string]map[string]*operation `json:"paths"`
	Components struct {
		Schemas   map[string]*schema  `json:"schemas"`
		Responses map[string]response `json:"responses"`
		Headers   map[string]any      `json:"headers"`
	} `json:"components"`
	Codes  []code   `json:"x-codes"`
	Common []string `json:"x-common-headers"` // of requests to any route

	common map[string]bool // "404 not_found": every route may answer it
	header map[string]bool // each request header of some route, in lower case
}

type code struct {
	Status int    `json:"status"`
	Code   string `json:"code"`
}

type operation struct {
	Parameters []parameter         `json:"parameters"`
	Body       *body               `json:"requestBody"`
	Responses  map[string]response `json:"responses"`
	Codes      []string            `json:"x-codes"`
	Access     string              `json:"x-access"`
}

type parameter struct {
	Name string `json:"name"`
	In   string `json:"in"`
}

type body struct {
	Content map[string]media `json:"content"`
}

type response struct {
	Ref     string           `json:"$ref"`
	Headers map[string]any   `json:"headers"`
	Content map[string]media `json:"content"`
}

type media struct {
	Schema *schema `json:"schema"`
	Lines  *schema `json:"x-lines"`
}

type schema struct {
	Ref        string             `json:"$ref"`
	Properties map[string]*schema `json:"properties"`
	Items      *schema            `json:"items"`
	Values     json.RawMessage    `json:"additionalProperties"` // a schema or a bool
	OneOf      []*schema          `json:"oneOf"`
	AllOf      []*schema          `json:"allOf"`
	AnyOf      []*schema          `json:"anyOf"`
}

func readDocument(name string) (*document, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	return parse(text)
}

func parse(text []byte) (*document, error) {
	d := &document{text: text, common: map[string]bool{}, header: map[string]bool{}}
	if err := json.Unmarshal(text, d); err != nil {
		return nil, fmt.Errorf("openapi.json: %w", err)
	}
	for _, c := range d.Codes {
		d.common[strconv.Itoa(c.Status)+" "+c.Code] = true
	}
	for _, methods := range d.Paths {
		for _, op := range methods {
			for _, c := range op.Codes {
				delete(d.common, c)
			}
			for _, p := range op.Parameters {
				if p.In == "header" {
					d.header[strings.ToLower(p.Name)] = true
				}
			}
		}
	}
	return d, nil
}

// at returns a route, "GET /channels", nil where the document has none.
func (d *document) at(route string) *operation {
	method, path, _ := strings.Cut(route, " ")
	return d.Paths[path][strings.ToLower(method)]
}

// answer returns what the document says of a status, and where: "GET /channels answers 200", or "a problem 404".
func (d *document) answer(route string, status int) (r response, where string, ok bool) {
	name := strconv.Itoa(status)
	if r, ok = d.at(route).Responses[name]; ok && r.Ref == "" {
		return r, route + " answers " + name, true
	}
	if ok {
		of := lastOf(r.Ref)
		return d.Components.Responses[of], "a problem " + of, true
	}
	return r, route + " answers " + name, false
}

// resolve follows the reference of a schema, and returns its name.
func (d *document) resolve(s *schema) (of *schema, name string) {
	if s == nil || s.Ref == "" {
		return s, ""
	}
	name = lastOf(s.Ref)
	return d.Components.Schemas[name], name
}

func lastOf(ref string) string { return ref[strings.LastIndexByte(ref, '/')+1:] }

// has reports whether a list has a name in any case of letters.
func has(list []string, name string) bool {
	return slices.ContainsFunc(list, func(one string) bool { return strings.EqualFold(one, name) })
}
