package main

import (
	"slices"
	"strconv"
	"strings"

	"github.com/penstock-broker/penstock/api"
	"github.com/penstock-broker/penstock/internal/model/apitype"
)

// ofEvery returns the codes that every route may answer: those that no line of routesOfCodes names.
func (b *builder) ofEvery() (out []code) {
	named := map[string]bool{}
	for _, of := range routesOfCodes {
		for _, name := range strings.Fields(of.codes) {
			named[name] = true
		}
	}
	for _, c := range b.codes {
		if !named[c.Code] && !slices.Contains(unrouted, c.Code) {
			out = append(out, c)
		}
	}
	return out
}

// unrouted are the codes of requests that no route takes.
var unrouted = []string{"no_such_path"}

// codesOf returns the codes that a route may answer beside those of all, as "404 job_not_found".
func (b *builder) codesOf(route string) (out []string) {
	for _, c := range b.codes {
		if b.mayAnswer(route, c) {
			out = append(out, c.String())
		}
	}
	return out
}

func (b *builder) mayAnswer(route string, c code) bool {
	return slices.ContainsFunc(routesOfCodes, func(of codesOf) bool {
		return slices.Contains(strings.Fields(of.codes), c.Code) && fits(of.routes, route)
	})
}

// failing returns the statuses of the errors that a route may answer.
func (b *builder) failing(r api.Route) (out []int) {
	for _, c := range b.codes {
		if slices.Contains(b.common, c) || b.mayAnswer(r.Method+" "+r.Path, c) {
			out = append(out, c.Status)
		}
	}
	for _, p := range pageFailures {
		if fits(p.routes, r.Method+" "+r.Path) {
			out = append(out, p.status)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// pageOf and sqsOf begin the names of answers to browsers and to clients of SQS, in the components of the document.
const (
	pageOf = "page-"
	sqsOf  = "sqs-"
)

// A form is how the errors of a kind of routes with some statuses look.
type form struct {
	kind     string
	statuses []int
	media    []string
}

// The door for SQS has a few statuses, and the document says them in its own media types. A request to / that names no
// action of SQS and is not well-formed is refused before the door. Pages say in HTML what is wrong with what they were
// asked for; a request that is refused before it comes to a page gets a problem.
var forms = []form{
	{sqsOf, []int{400, 403, 404, 405, 429, 500, 503}, []string{"application/x-amz-json-1.0", "text/xml"}},
	{sqsOf, []int{400}, []string{apitype.MediaProblem}},
	{pageOf, []int{400, 401, 403, 404, 405, 409, 410, 429, 500, 503}, []string{"text/html"}},
	{pageOf, []int{400, 403, 404, 408, 410, 413, 415, 429, 431, 500, 503}, []string{apitype.MediaProblem}},
}

// formsOf are the media types of the errors of a kind with a status; none: there is no such error.
func formsOf(kind string, status int) (out object) {
	for _, f := range forms {
		if f.kind != kind || !slices.Contains(f.statuses, status) {
			continue
		}
		for _, media := range f.media {
			of := object{{"schema", object{}}}
			if media == apitype.MediaProblem {
				of = object{{"schema", reference("schemas", "Problem")}}
			}
			out.add(media, of)
		}
	}
	return out
}

// failureOf names the component with the errors of a route with a status; "": it has none.
func failureOf(r api.Route, status int) string {
	kind := ""
	switch r.Access {
	case api.AccessSQS:
		kind = sqsOf
	case api.AccessUI, api.AccessLink:
		kind = pageOf
	}
	switch {
	case kind != "" && len(formsOf(kind, status)) > 0:
		return kind + strconv.Itoa(status)
	case kind == "" || r.Path == "/" && slices.Contains([]int{408, 413, 431}, status): // refused before the door
		return strconv.Itoa(status)
	}
	return ""
}

// responses are the problems by status.
func (b *builder) responses() (out object) {
	var statuses []int
	for _, c := range b.codes {
		statuses = append(statuses, c.Status)
	}
	slices.Sort(statuses)
	statuses = slices.Compact(statuses)
	for _, status := range statuses {
		var names, texts []string
		for _, c := range b.codes {
			if c.Status == status {
				names = append(names, c.Code)
				texts = append(texts, "- `"+c.Code+"`: "+c.When)
			}
		}
		schema := object{{"allOf", []object{reference("schemas", "Problem")}}, {"properties", object{
			{"status", object{{"const", status}}}, {"code", object{{"enum", names}}}}}}
		headers := object{{"X-Request-ID", reference("headers", "X-Request-ID")}}
		headers = append(headers, failureHeaders(status)...)
		out.add(strconv.Itoa(status), object{{"description", strings.Join(texts, "\n")}, {"headers", headers},
			{"content", object{{"application/problem+json", object{{"schema", schema}}}}}})
	}
	for _, status := range statuses {
		for _, of := range []struct{ kind, text string }{{pageOf, "a page that says what is wrong, or a problem"},
			{sqsOf, "an error as SQS has it, or a problem"}} {
			name := of.kind + strconv.Itoa(status)
			if !b.failures[name] {
				continue
			}
			headers := append(object{{"X-Request-ID", reference("headers", "X-Request-ID")}}, pageHeaders(of.kind, status)...)
			out.add(name, object{{"description", of.text}, {"headers", headers}, {"content", formsOf(of.kind, status)}})
		}
	}
	return out
}

// pageHeaders are the headers of the errors of pages, and of SQS.
func pageHeaders(kind string, status int) (out object) {
	switch status {
	case 405, 429, 503:
		out = failureHeaders(status)[:1]
	}
	if kind == sqsOf {
		out = append(out, member{"X-Amzn-RequestId", object{{"schema", aText}}},
			member{"X-Amzn-Query-Error", object{{"schema", aText}}})
	}
	return out
}

// failureHeaders are the headers of errors.
func failureHeaders(status int) (out object) {
	header := func(name, text string) { out.add(name, object{{"description", text}, {"schema", aText}}) }
	switch status {
	case 401:
		header("WWW-Authenticate", "asks for a bearer token")
	case 405:
		header("Allow", "the methods of the path")
	case 409:
		header("Location", "what is there already")
		header("X-Broker-Ack", "of duplicate_message_id: what the success of the first request promised")
		header("X-Broker-Claimed", "false: the job is another worker's")
	case 429, 503:
		header("Retry-After", "seconds to wait, where waiting helps")
	}
	if slices.Contains([]int{400, 401, 403, 404, 412, 413, 429}, status) {
		header("X-Broker-Claimed", "of a move to INFLIGHT: false")
	}
	if status == 502 || status == 504 {
		header("Location", "where the responses are")
		header("Preference-Applied", "how long the request waited for a response")
		header("X-Broker-Ack", "what is promised of the message, which is stored")
	}
	return out
}

// sharedHeaders are those that every answer may have.
var sharedHeaders = object{{"X-Request-ID", object{{"description",
	"that of the request, or one that the broker made: the log has it"}, {"schema", aText}}}}
