package main

import (
	"bytes"
	"encoding/json"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/penstock-broker/penstock/internal/test/traffic"
)

// plain are the headers of answers that say nothing of a route: those of HTTP and those that tell a browser what it
// may do.
var plain = []string{"Date", "Server", "Content-Length", "Content-Type", "Content-Encoding", "Connection", "Keep-Alive",
	"Transfer-Encoding", "Cache-Control", "X-Content-Type-Options", "Content-Security-Policy", "Referrer-Policy",
	"X-Frame-Options", "Cross-Origin-Opener-Policy", "Cross-Origin-Resource-Policy", "Permissions-Policy", "Set-Cookie"}

// seen adds what an exchange has. Of a refused request only the answer counts: it may be wrong in any way.
func (d *document) seen(e traffic.Exchange, all, codes items) {
	var p struct {
		Code   string
		Status int
	}
	if mediaOf(e.Answer) == "application/problem+json" && json.Unmarshal(e.Text, &p) == nil && p.Code != "" {
		all.add("code", strconv.Itoa(e.Status), p.Code)
	}
	op := d.at(e.Route)
	switch {
	case e.Route == "" || p.Code == "no_such_path": // a route takes the path once it is clean
		return
	case op == nil:
		all.add(e.Route)
		return
	}
	all.add(e.Route)
	if e.Status < 400 {
		d.seenRequest(e, op, all)
	}
	if c := strconv.Itoa(e.Status) + " " + p.Code; p.Code != "" && !d.common[c] {
		codes.add(e.Route, "answers", c)
	}
	d.seenAnswer(e, all)
}

func (d *document) seenRequest(e traffic.Exchange, op *operation, all items) {
	_, query, _ := strings.Cut(e.Path, "?")
	values, _ := url.ParseQuery(query) // what it could read
	for name := range values {
		if name != "" {
			all.add(e.Route, "takes query", name)
		}
	}
	for name := range e.Headers {
		known := ""
		for _, p := range op.Parameters {
			if p.In == "header" && strings.EqualFold(p.Name, name) {
				known = p.Name
			}
		}
		low := strings.ToLower(name)
		if known != "" {
			all.add(e.Route, "takes header", known)
		} else if (strings.HasPrefix(low, "x-broker-") || d.header[low]) && !has(d.Common, name) && !ignored(e, name) {
			all.add(e.Route, "takes header", name)
		}
	}
	if len(e.Body) == 0 || op.Body == nil {
		return
	}
	sent := sentMedia(op, e)
	m, name := chosen(op.Body.Content, sent)
	all.add(e.Route, "takes", name)
	switch {
	case e.Cut:
	case name == "multipart/form-data":
		for _, part := range partsOf(e) {
			all.add("member", e.Route+" takes "+name+"."+part)
		}
	default:
		walker{d, all, true}.body(sent, e.Body, m, e.Route+" takes "+name)
	}
}

// ignored reports whether a header asks nothing of a route: a preference that it does not know (RFC 7240), and a body
// that has no coding.
func ignored(e traffic.Exchange, name string) bool {
	return strings.EqualFold(name, "Prefer") ||
		strings.EqualFold(name, "Content-Encoding") && strings.EqualFold(e.Headers.Get(name), "identity")
}

// partsOf returns the names of the parts of a form of parts, up to the first that cannot be read.
func partsOf(e traffic.Exchange) (names []string) {
	_, params, err := mime.ParseMediaType(e.Headers.Get("Content-Type"))
	if err != nil {
		return nil
	}
	for r := multipart.NewReader(bytes.NewReader(e.Body), params["boundary"]); ; {
		part, err := r.NextPart()
		if err != nil {
			return names
		}
		names = append(names, part.FormName())
	}
}

func (d *document) seenAnswer(e traffic.Exchange, all items) {
	said, where, ok := d.answer(e.Route, e.Status)
	if said.Ref == "" && !strings.HasPrefix(where, "a problem") || !ok {
		all.add(where)
	}
	for name := range e.Answer {
		if known := knownHeader(said, name); known != "" {
			all.add(where, "with", known)
		} else if !has(plain, name) {
			all.add(where, "with", name)
		}
	}
	if len(e.Text) == 0 {
		return
	}
	m, name := chosen(said.Content, mediaOf(e.Answer))
	all.add(where, "as", name)
	if !e.TextCut {
		walker{d, all, false}.body(mediaOf(e.Answer), e.Text, m, where)
	}
}

func knownHeader(r response, name string) string {
	for known := range r.Headers {
		if strings.EqualFold(known, name) {
			return known
		}
	}
	return ""
}

// sentMedia returns the media type of a request. A route that takes one type needs no name of it, and takes the one
// that curl gives all bodies.
func sentMedia(op *operation, e traffic.Exchange) string {
	sent := mediaOf(e.Headers)
	if content := op.Body.content(); len(content) == 1 && (sent == "" || sent == "application/x-www-form-urlencoded") {
		for sent = range content {
		}
	}
	return sent
}

// loose reports whether the validator cannot check a request: lines, a coded body, a form, whose values are texts, or
// JSON in its place.
func (d *document) loose(e traffic.Exchange) bool {
	_, form := d.at(e.Route).Body.content()["application/x-www-form-urlencoded"]
	return form || mediaOf(e.Headers) == lines || e.Headers.Get("Content-Encoding") != ""
}

// partly reports whether the answer refuses a part of the request, a line or a job.
func partly(e traffic.Exchange) bool {
	codes := items{}
	walker{&document{}, codes, false}.body(mediaOf(e.Answer), e.Text, media{Schema: &schema{}}, "")
	return len(codes) > 0
}

const lines = "application/x-ndjson"

func (b *body) content() map[string]media {
	if b == nil {
		return nil
	}
	return b.Content
}

// chosen returns the media type that a content has for one of traffic: itself, or any.
func chosen(content map[string]media, name string) (media, string) {
	if m, ok := content[name]; ok {
		return m, name
	}
	if m, ok := content["*/*"]; ok {
		return m, "*/*"
	}
	return media{}, name
}

func mediaOf(h http.Header) string {
	name, _, err := mime.ParseMediaType(h.Get("Content-Type"))
	if err != nil {
		return h.Get("Content-Type")
	}
	return name
}

// body adds the members of a body: JSON, lines of JSON, or a form.
func (w walker) body(name string, text []byte, m media, where string) {
	if name == "application/x-www-form-urlencoded" {
		values, err := url.ParseQuery(string(text))
		if err != nil || m.Schema == nil {
			return
		}
		form := map[string]any{}
		for name := range values {
			form[name] = ""
		}
		w.walk(form, m.Schema, where)
		return
	}
	of := m.Schema
	if m.Lines != nil {
		of = m.Lines
	}
	if !strings.Contains(name, "json") || of == nil {
		return
	}
	for dec := json.NewDecoder(bytes.NewReader(text)); ; {
		var v any
		if err := dec.Decode(&v); err == io.EOF || err != nil {
			return
		}
		w.walk(v, of, where)
		if line, ok := v.(map[string]any); ok {
			codeOf(line, w.all)
		}
	}
}

// codeOf adds the codes of lines and of jobs.
func codeOf(v map[string]any, all items) {
	for name, one := range v {
		switch one := one.(type) {
		case []any:
			for _, entry := range one {
				if entry, ok := entry.(map[string]any); ok {
					codeOf(entry, all)
				}
			}
		case string:
			status, ok := v["Status"].(float64)
			if ok && name == "code" {
				all.add("code", strconv.Itoa(int(status)), one)
			}
		}
	}
}
