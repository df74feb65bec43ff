package openapi

import (
	"slices"
	"strings"
	"sync"

	"github.com/penstock-broker/penstock/internal/tool/asset"
)

// The bounds of a search: MaxQuery characters asked for, maxWords words of them looked at, maxHits results of a kind.
const (
	MaxQuery = 100
	maxWords = 8
	maxHits  = 25
)

// A hit is something in the reference, with the address of its place there.
type hit struct {
	Name, Text, Link string
	name, all        string // what is searched, in lower case
}

// A kind is what a search found of one kind of things, the best first, and how many more there are.
type kind struct {
	Name string
	Hits []hit
	More int
}

// index is all that a search looks at. It is as small as the document: a search reads all of it.
var index = sync.OnceValue(func() []kind {
	d := read()
	routes, types, members, codes := kind{Name: "Routes"}, kind{Name: "Types"}, kind{Name: "Members"}, kind{Name: "Errors"}
	for _, p := range d.Paths {
		for _, m := range p.Value {
			also := []string{m.Value.ID}
			for _, q := range m.Value.Parameters {
				also = append(also, q.Name, q.Description)
			}
			routes.add(strings.ToUpper(m.Name)+" "+p.Name, m.Value.Summary, "/docs#"+m.Value.ID, also...)
		}
	}
	for _, t := range d.Components.Schemas {
		types.add(t.Name, t.Value.Description, "/docs#type-"+t.Name)
		for _, m := range t.Value.Properties {
			members.add(t.Name+"."+m.Name, m.Value.Description, "/docs#type-"+t.Name)
		}
	}
	for _, l := range errorLines() {
		codes.add(l.Code.Code, l.When, "/docs/errors#"+l.ID)
	}
	return []kind{routes, types, members, codes}
})

func (k *kind) add(name, text, link string, also ...string) {
	k.Hits = append(k.Hits, hit{name, text, link, strings.ToLower(name),
		strings.ToLower(strings.Join(append(also, name, text), "\n"))})
}

// search returns what has every word of a query: first what is named so, then what has the words in its name, then
// what has them in its text.
func search(query string) (found []kind) {
	query = strings.ToLower(strings.ToValidUTF8(query, "\ufffd"))
	words := strings.Fields(query)
	words = words[:min(len(words), maxWords)]
	for _, k := range index() {
		of := kind{Name: k.Name}
		var ranks [3][]hit
		for _, h := range k.Hits {
			switch {
			case !hasAll(h.all, words):
			case h.name == strings.TrimSpace(query) || strings.HasSuffix(h.name, "."+strings.TrimSpace(query)):
				ranks[0] = append(ranks[0], h)
			case hasAll(h.name, words):
				ranks[1] = append(ranks[1], h)
			default:
				ranks[2] = append(ranks[2], h)
			}
		}
		of.Hits = slices.Concat(ranks[:]...)
		of.More = max(0, len(of.Hits)-maxHits)
		of.Hits = of.Hits[:len(of.Hits)-of.More]
		if len(of.Hits) > 0 {
			found = append(found, of)
		}
	}
	return found
}

func hasAll(text string, words []string) bool {
	return !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(text, w) })
}

// Found returns the page with what a search finds. query has one word at least and MaxQuery characters at most.
func Found(query string) *asset.File {
	return asset.New(html, pagePolicy, render("search.html", struct {
		Query string
		Kinds []kind
	}{strings.ToValidUTF8(query, "\ufffd"), search(query)}))
}
