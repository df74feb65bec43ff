package openapi

import (
	_ "embed" // the script
	"encoding/json"
	"net/url"
	"slices"
	"strings"
)

// script sends the requests of the page at /docs/try.
//
//go:embed pages/try.js
var script string

// tryPolicy allows that page its style, the script of this broker, and requests to this broker from that script. No
// form is sent by the browser itself, so tokens are in no address, and no text becomes markup.
var tryPolicy = "default-src 'none'; style-src 'sha256-" + hashOf(style) + "'; script-src 'self'; " +
	"connect-src 'self'; require-trusted-types-for 'script'; trusted-types 'none'; base-uri 'none'; " +
	"form-action 'none'; frame-ancestors 'none'"

const scriptMedia = "text/javascript; charset=utf-8"

// A form is what the page needs to send a request to a route.
type form struct {
	route
	Needs     string // the names of its tokens, with blanks between
	Medias    []sample
	Destroys  bool // it asks whether that is meant
	AnyMedia  bool
	FirstBody string
}

// A sample is an example of a body in a media type.
type sample struct{ Media, Text string }

// tokens are the fields of the page that every form uses.
var tokens = []string{"admin", "channel", "producer", "consumer"}

// formsOf returns the forms of an area.
func formsOf(a area) (out []form) {
	for _, r := range a.Routes {
		if !r.Tried() {
			continue
		}
		f := form{route: r, Destroys: r.Method == "DELETE" || strings.HasSuffix(r.Path, "/purge") ||
			strings.HasSuffix(r.Path, "/dlq/delete")}
		var needs []string
		for _, name := range tokens {
			if slices.ContainsFunc(r.Security, func(way map[string][]bool) bool { _, ok := way[name]; return ok }) {
				needs = append(needs, name)
			}
		}
		f.Needs = strings.Join(needs, " ")
		if r.Body != nil {
			for _, c := range r.Body.Content {
				if c.Name != "multipart/form-data" { // only a file has such a body
					f.Medias = append(f.Medias, sample{c.Name, exampleText(c.Name, c.Value)})
				}
			}
			f.FirstBody, f.AnyMedia = f.Medias[0].Text, f.Medias[0].Media == "*/*"
		}
		out = append(out, f)
	}
	return out
}

// exampleText is the example of a body as a request has it.
func exampleText(media string, of media) string {
	example := of.Example
	if example == nil {
		example = of.Line
	}
	switch {
	case example == nil && media == "*/*":
		return `{"hello":"world"}`
	case media != "application/x-www-form-urlencoded":
		return string(example)
	}
	var fields ordered[string]
	if json.Unmarshal(example, &fields) != nil {
		return ""
	}
	var pairs []string
	for _, f := range fields {
		pairs = append(pairs, url.QueryEscape(f.Name)+"="+url.QueryEscape(f.Value))
	}
	return strings.Join(pairs, "&")
}

func renderTry() []byte {
	type formArea struct {
		area
		Forms []form
	}
	var all []formArea
	for _, a := range areas() {
		if forms := formsOf(a); len(forms) > 0 {
			all = append(all, formArea{a, forms})
		}
	}
	return render("try.html", struct {
		Tokens []string
		Areas  []formArea
	}{tokens, all})
}
