package openapi

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"encoding/json"
	"html/template"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
)

var (
	//go:embed pages/*.html
	pageFiles embed.FS
	//go:embed pages/style.css
	style string

	pageTemplates = template.Must(template.New("pages").Funcs(template.FuncMap{"code": marked, "pretty": pretty,
		"longest": func() int { return MaxQuery },
		"style":   func() template.CSS { return template.CSS(style) }}).ParseFS(pageFiles, "pages/*.html"))

	// pagePolicy allows a page its own style, a search, and nothing else.
	pagePolicy = "default-src 'none'; style-src 'sha256-" + hashOf(style) +
		"'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)

func hashOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return base64.StdEncoding.EncodeToString(sum[:])
}

// read is the document.
var read = sync.OnceValue(func() *document {
	var d document
	if err := json.Unmarshal(text(), &d); err != nil {
		panic(err) // it is embedded
	}
	return &d
})

// marked returns a text with what stands in backquotes as code.
func marked(text string) template.HTML {
	var b strings.Builder
	for i, part := range strings.Split(text, "`") {
		part = template.HTMLEscapeString(part)
		if i%2 == 1 {
			part = "<code>" + part + "</code>"
		}
		b.WriteString(part)
	}
	return template.HTML(b.String())
}

// pretty returns JSON on lines of its own.
func pretty(raw json.RawMessage) string {
	var b bytes.Buffer
	if err := json.Indent(&b, raw, "", "  "); err != nil {
		return string(raw)
	}
	return b.String()
}

func render(name string, data any) []byte {
	var b bytes.Buffer
	if err := pageTemplates.ExecuteTemplate(&b, name, data); err != nil {
		panic(err) // a test renders them
	}
	return b.Bytes()
}

// An area is the routes of one page of the documentation.
type area struct {
	tag
	Routes []route
}

// A route is what the page shows of a route.
type route struct {
	Method, Path string
	operation
	Failures []failure
	Curl     string
}

// Tried reports whether the page at /docs/try has a form for a route: pages are opened by a browser, and the requests
// to the SQS door are signed.
func (r route) Tried() bool { return r.Access != "dashboard" && r.Access != "sqs" }

// A failure is the codes of one status.
type failure struct {
	Status string
	Codes  []string
}

// areas returns the routes of the document by area.
func areas() (all []area) {
	d := read()
	for _, t := range d.Tags {
		all = append(all, area{tag: t})
	}
	for _, p := range d.Paths {
		for _, m := range p.Value {
			r := route{Method: strings.ToUpper(m.Name), Path: p.Name, operation: m.Value}
			r.Failures, r.Curl = failures(r.Codes), curl(r)
			at := slices.IndexFunc(all, func(a area) bool { return slices.Contains(r.Tags, a.Name) })
			all[at].Routes = append(all[at].Routes, r)
		}
	}
	return all
}

func renderRoutes() []byte {
	return render("routes.html", struct {
		Areas []area
		Types ordered[schema]
	}{areas(), read().Components.Schemas})
}

// failures groups codes by status.
func failures(codes []string) (out []failure) {
	for _, c := range codes {
		status, name, _ := strings.Cut(c, " ")
		if len(out) == 0 || out[len(out)-1].Status != status {
			out = append(out, failure{Status: status})
		}
		last := &out[len(out)-1]
		last.Codes = append(last.Codes, name)
	}
	return out
}

// samples fill the parameters of paths in commands.
var samples = strings.NewReplacer("{producer}", "shop", "{channel}", "orders", "{consumer}", "billing",
	"{message}", "order-1", "{scheduled}", "order-1", "{job}", "06gvk862do0000000010", "{bulk}", "06gvk862do0000000010",
	"{replay}", "7", "{redrive}", "7", "{receipt}", "RECEIPT", "{link}", "LINK", "{key}", "KEY", "{action}", "pause")

// curl returns a command that sends a request to a route.
func curl(r route) string {
	parts := []string{"curl -i"}
	if r.Method != "GET" {
		parts = append(parts, "-X "+r.Method)
	}
	headers := map[string]string{"admin": "X-Broker-Admin-Token: $ADMIN_TOKEN",
		"channel":  "X-Broker-Channel-Token: $CHANNEL_TOKEN",
		"producer": "X-Broker-Producer-Token: $PRODUCER_TOKEN",
		"consumer": "X-Broker-Consumer-Token: $CONSUMER_TOKEN"}
	for _, way := range r.Security {
		if len(way) == 0 { // while management is open
			continue
		}
		for _, scheme := range slices.Sorted(maps.Keys(way)) {
			if headers[scheme] != "" {
				parts = append(parts, `-H "`+headers[scheme]+`"`)
			}
		}
		if _, ok := way["producer"]; ok {
			parts = append(parts, `-H "X-Broker-Producer-ID: shop"`)
		}
		break
	}
	if r.Body != nil {
		first := r.Body.Content[0]
		example := first.Value.Example
		if example == nil {
			example = first.Value.Line
		}
		if example != nil && first.Name != "application/x-www-form-urlencoded" {
			parts = append(parts, "-H 'Content-Type: "+first.Name+"'")
		}
		parts = append(parts, data(example, first.Name)...)
	}
	return strings.Join(append(parts, `"$PENSTOCK_URL`+samples.Replace(r.Path)+`"`), " \\\n  ")
}

// data are the arguments of curl with the example of a body.
func data(example json.RawMessage, media string) (out []string) {
	if example == nil {
		return []string{`-d 'hello'`}
	}
	if media != "application/x-www-form-urlencoded" {
		return []string{"--data-binary '" + string(example) + "'"}
	}
	var fields ordered[string]
	if json.Unmarshal(example, &fields) != nil {
		return nil
	}
	for _, f := range fields {
		out = append(out, "--data-urlencode '"+f.Name+"="+f.Value+"'")
	}
	return out
}

// An errorLine is a line of the page of errors.
type errorLine struct {
	Code
	ID string
}

func errorLines() (lines []errorLine) {
	seen := map[string]bool{}
	for _, c := range read().Codes {
		l := errorLine{c, c.Code}
		if seen[c.Code] { // with another status
			l.ID = c.Code + "-" + strconv.Itoa(c.Status)
		}
		seen[c.Code] = true
		lines = append(lines, l)
	}
	return lines
}

func renderErrors() []byte { return render("errors.html", errorLines()) }
