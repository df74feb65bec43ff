package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/penstock-broker/penstock/api"
	"github.com/penstock-broker/penstock/internal/model/apitype"
)

const (
	project = "https://github.com/penstock-broker/penstock"
	about   = "Penstock is a message broker over HTTP. Bodies are JSON with members in PascalCase, errors are problems " +
		"(RFC 9457) with a stable code. What is common to all routes is in the documentation of the API."
)

// A builder makes the document.
type builder struct {
	root     string
	routes   []api.Route
	types    map[string]apitype.Route
	codes    []code
	common   []code // that every route may answer
	sections map[string]section
	answers  answers
	schemas  *schemas
	used     map[string]bool // operationIds
	missing  []string        // what has no description
	spoken   map[string]bool // descriptions that are used
	failures map[string]bool // components of errors that routes have
}

// generate returns the document.
func generate(root string) ([]byte, error) {
	_, text, err := build(root)
	return text, err
}

// build makes the document.
func build(root string) (*builder, []byte, error) {
	b := &builder{root: root, routes: api.Routes(), types: map[string]apitype.Route{}, used: map[string]bool{},
		spoken: map[string]bool{}, failures: map[string]bool{}}
	for _, r := range apitype.Routes() {
		b.types[r.Method+" "+r.Path] = r
	}
	texts, err := readComments(root)
	if err == nil {
		b.codes, err = readCodes(root)
	}
	if err == nil {
		b.sections, err = readSections(root)
	}
	if err == nil {
		b.answers, err = readAnswers(root)
	}
	if err != nil {
		return nil, nil, err
	}
	b.schemas = newSchemas(texts)
	b.common = b.ofEvery()
	text, err := b.document()
	if err == nil && len(b.missing) > 0 {
		err = fmt.Errorf("nothing describes %s", strings.Join(b.missing, "; "))
	}
	return b, text, err
}

// document returns the whole document, indented.
func (b *builder) document() ([]byte, error) {
	paths, err := b.paths()
	if err != nil {
		return nil, err
	}
	tags, err := b.tags()
	if err != nil {
		return nil, err
	}
	b.schemas.of(apitype.Problem{}, false)
	var all []string
	for _, c := range b.codes {
		all = append(all, c.Code)
	}
	slices.Sort(all)
	schemas := b.schemas.all()
	schemas.add("Code", object{{"type", "string"}, {"description", "The stable code of an error."},
		{"enum", slices.Compact(all)}})
	doc := object{
		{"openapi", "3.1.0"},
		{"info", object{{"title", "Penstock"}, {"version", "1"}, {"description", about}, {"license",
			object{{"name", "Apache-2.0"}, {"identifier", "Apache-2.0"}}}}},
		{"externalDocs", object{{"url", project + "/blob/main/docs/api.md"}}},
		{"servers", []object{{{"url", "/"}}}},
		{"tags", tags},
		{"paths", paths},
		{"components", object{{"schemas", schemas}, {"responses", b.responses()}, {"headers", sharedHeaders},
			{"securitySchemes", securitySchemes}}},
		{"x-codes", b.codes},
		{"x-common-headers", api.CommonHeaders()},
	}
	raw, err := encode(doc)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	if err := json.Indent(&out, raw, "", " "); err != nil {
		return nil, err
	}
	out.WriteByte('\n')
	return out.Bytes(), nil
}

// tags are the pages of the documentation, in the order of the routes.
func (b *builder) tags() (out []object, err error) {
	seen := map[string]bool{}
	for _, r := range b.routes {
		page := b.sections[r.Method+" "+r.Path].page
		if page == "" || seen[page] {
			continue
		}
		seen[page] = true
		title, err := titleOf(b.root, page)
		if err != nil {
			return nil, err
		}
		out = append(out, object{{"name", page}, {"description", title}, {"externalDocs", object{{"url",
			project + "/blob/main/docs/" + page + ".md"}}}})
	}
	return out, nil
}

// paths are all routes, by path in the order of the table.
func (b *builder) paths() (out object, err error) {
	for _, r := range b.routes {
		op, err := b.operation(r)
		if err != nil {
			return nil, err
		}
		method := strings.ToLower(r.Method)
		at := slices.IndexFunc(out, func(m member) bool { return m.name == r.Path })
		if at < 0 {
			out.add(r.Path, object{{method, op}})
			continue
		}
		out[at].value = append(out[at].value.(object), member{method, op})
	}
	return out, nil
}

// operation is a route.
func (b *builder) operation(r api.Route) (object, error) {
	name := r.Method + " " + r.Path
	types, ok := b.types[name]
	at := b.sections[name]
	if !ok || at.page == "" {
		return nil, fmt.Errorf("%s has no types, or no line in docs/routes.md", name)
	}
	op := object{{"operationId", b.idOf(r)}, {"summary", r.Summary}, {"tags", []string{at.page}},
		{"externalDocs", object{{"url", project + "/blob/main/docs/" + at.page + ".md" + at.anchor}}}}
	if parameters := b.parameters(r); len(parameters) > 0 {
		op.add("parameters", parameters)
	}
	if body := b.requestBody(name, types.Request); body != nil {
		op.add("requestBody", body)
	}
	op.add("responses", b.responsesOf(r, types))
	op.add("security", securityOf(r))
	op.add("x-access", r.Access)
	if codes := b.codesOf(name); len(codes) > 0 {
		op.add("x-codes", codes)
	}
	return op, nil
}

// idOf makes the name of a route for generated clients: getChannelConsumerJob.
func (b *builder) idOf(r api.Route) string {
	id, last := strings.ToLower(r.Method), ""
	for _, segment := range strings.Split(strings.Trim(r.Path, "/"), "/") {
		if of, ok := strings.CutPrefix(segment, "{"); ok {
			of = strings.TrimSuffix(of, "}")
			if !strings.HasPrefix(last, of) && last != "dlq" {
				id += "By" + capital(of)
			}
			continue
		}
		for _, word := range strings.FieldsFunc(segment, func(c rune) bool { return c == '-' || c == '_' || c == '.' }) {
			id += capital(word)
		}
		last = segment
	}
	if r.Path == "/" {
		id += "Root"
	}
	if b.used[id] {
		b.missing = append(b.missing, "another operationId than "+id)
	}
	b.used[id] = true
	return id
}

func capital(word string) string { return strings.ToUpper(word[:1]) + word[1:] }

// say returns the line of a table for a name on a route.
func (b *builder) say(table []word, name, route string) word {
	for i := range table {
		if w := table[i]; w.name == name && fits(w.routes, route) {
			b.spoken[w.name+" "+w.routes] = true
			return w
		}
	}
	b.missing = append(b.missing, name+" of "+route)
	return word{name: name, schema: aText}
}

// parameters are those of the path, the query and the headers.
func (b *builder) parameters(r api.Route) (out []object) {
	route := r.Method + " " + r.Path
	add := func(in, name string, required bool, w word) {
		p := object{{"name", name}, {"in", in}}
		if required {
			p.add("required", true)
		}
		p.addText("description", w.text)
		p.add("schema", w.schema)
		out = append(out, p)
	}
	for _, segment := range strings.Split(r.Path, "/") {
		if name := strings.Trim(segment, "{}"); name != segment {
			add("path", name, true, b.say(pathWords, name, route))
		}
	}
	for _, name := range r.Query {
		add("query", name, false, b.say(queryWords, name, route))
	}
	for _, name := range r.Headers {
		if name != "Content-Type" {
			add("header", name, false, b.say(headerWords, name, route))
		}
	}
	for _, w := range plainHeaders {
		if fits(w.routes, route) {
			add("header", w.name, false, w)
		}
	}
	if ofProducer(r) {
		add("header", "X-Broker-Producer-ID", false, word{text: "ID of the producer, whose token the request has",
			schema: aPlace})
	}
	return out
}

// requestBody is the body that a route takes, nil for none.
func (b *builder) requestBody(route string, body apitype.Body) object {
	if body.Media == "" {
		return nil
	}
	content := object{{body.Media, b.media(body, "request", nil)}}
	required := body.Media == apitype.MediaLines
	switch {
	case body.Media == apitype.MediaForm:
		if view := b.viewOf(route); view != nil {
			content.add(apitype.MediaJSON, object{{"schema", b.schemas.document(body.Value, view)}})
		} else if fits("POST */dlq", route) {
			content.add(apitype.MediaJSON, object{{"schema", object{{"type", "object"}, {"properties",
				object{{"Requeue", aText}}}}}})
		}
	case body.Media == apitype.MediaJSON:
		required = slices.ContainsFunc(fieldsOf(reflect.TypeOf(body.Value)), func(f field) bool {
			_, optional := memberOf(f.StructField)
			return !optional
		})
	}
	for _, more := range bodies {
		if fits(more.routes, route) {
			content.add(more.media, object{{"schema", more.schema}})
			required = true
		}
	}
	return object{{"content", content}, {"required", required}}
}

// viewOf is what a PUT of a resource answers, nil for other routes.
func (b *builder) viewOf(route string) any {
	if !strings.HasPrefix(route, "PUT ") {
		return nil
	}
	return b.types[route].Answers[0].Value
}

// media is a body of one media type.
func (b *builder) media(body apitype.Body, kind string, stored json.RawMessage) object {
	if body.Value == nil {
		return object{{"schema", object{}}} // any bytes
	}
	schema := b.schemas.of(body.Value, kind == "request")
	out := object{{"schema", schema}}
	if body.Media == apitype.MediaLines {
		out = object{{"schema", object{}}, {"x-lines", schema}}
	}
	name := reflect.TypeOf(body.Value).Name() + " " + kind
	if text, ok := examples[name]; ok {
		b.spoken["example "+name] = true
		stored = json.RawMessage(text)
	}
	if stored != nil && body.Media != apitype.MediaLines {
		out.add("example", stored)
	} else if stored != nil {
		out.add("x-example", stored)
	}
	return out
}

// responsesOf are the answers of a route.
func (b *builder) responsesOf(r api.Route, types apitype.Route) (out object) {
	route := r.Method + " " + r.Path
	byStatus := map[int]*object{}
	var statuses []int
	for _, a := range types.Answers {
		if byStatus[a.Status] == nil {
			byStatus[a.Status] = &object{}
			statuses = append(statuses, a.Status)
		}
		if a.Media != "" {
			byStatus[a.Status].add(a.Media, b.media(a.Body, "answer", b.answers[route+" "+strconv.Itoa(a.Status)]))
		}
	}
	if fits("POST */broadcast, POST */request", route) && byStatus[200] == nil { // a repeat that is acknowledged
		byStatus[200], statuses = &object{}, append(statuses, 200)
	}
	slices.Sort(statuses)
	for _, status := range statuses {
		answer := object{{"description", meaning(status)}, {"headers", b.headersOf(route, status)}}
		if content := *byStatus[status]; len(content) > 0 {
			answer.add("content", content)
		}
		out.add(strconv.Itoa(status), answer)
	}
	if r.Method == "GET" && (fits(plainHeaders[0].routes, route) || fits(plainHeaders[1].routes, route)) {
		out.add("304", object{{"description", "what the client has is current"}, {"headers", b.headersOf(route, 304)}})
	}
	if fits(pages, route) && byStatus[303] == nil {
		out.add("303", object{{"description", "to the login: the request has no session"}, {"headers",
			b.headersOf(route, 303)}})
	}
	for _, status := range b.failing(r) {
		if name := failureOf(r, status); name != "" {
			b.failures[name] = true
			out.add(strconv.Itoa(status), reference("responses", name))
		}
	}
	return out
}

func meaning(status int) string {
	return map[int]string{200: "done", 201: "created, and on disk", 202: "accepted, and on disk", 204: "done",
		303: "go on at Location"}[status]
}

// headersOf are the headers of the successful answers of a route with a status.
func (b *builder) headersOf(route string, status int) (out object) {
	out.add("X-Request-ID", reference("headers", "X-Request-ID"))
	for _, w := range answerHeaders {
		if fits(w.routes, route) && (w.statuses == "*" || strings.Contains(w.statuses, strconv.Itoa(status))) {
			b.spoken[w.name+" "+w.routes] = true
			out.add(w.name, object{{"description", w.text}, {"schema", w.schema}})
		}
	}
	return out
}
