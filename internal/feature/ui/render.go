package ui

import (
	"bytes"
	"crypto/rand"
	"embed"
	"encoding/hex"
	"errors"
	"html/template"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/internal/model/apitype"
	"github.com/penstock-broker/penstock/internal/tool/asset"
)

// mostPage bounds a page, bytes. Lists and payloads have bounds of their own, which together are less.
const mostPage = 2 << 20

// pagePolicy allows a page its style sheet, its icon and its forms.
const pagePolicy = "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; " +
	"frame-ancestors 'none'; base-uri 'none'"

// newNonce returns a nonce of 128 bits. Its letters make no words.
func newNonce() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // it never fails
	return hex.EncodeToString(b[:])
}

// scriptPolicy allows a page the script that has a nonce, and requests of it to the broker.
func scriptPolicy(nonce string) string {
	return pagePolicy + "; connect-src 'self'; script-src 'nonce-" + nonce + "'"
}

var (
	//go:embed pages/*.html
	pageFiles embed.FS
	//go:embed assets/style.css
	styleSheet []byte
	//go:embed assets/icon.svg
	icon []byte
	//go:embed assets/keys.js assets/vendor/*.js
	scriptFiles embed.FS
)

// scripts are what a page runs, in this order. assets/vendor/README.md says where those of others come from.
var scripts = []string{"vendor/htmx.min.js", "vendor/hx-sse.min.js", "vendor/hx-csp.min.js", "keys.js"}

// script is all of scripts.
func script() (all []byte) {
	for _, name := range scripts {
		text, err := scriptFiles.ReadFile("assets/" + name)
		if err != nil {
			panic(err) // they are embedded
		}
		all = append(append(all, text...), '\n')
	}
	return all
}

// templates are the pages by name, each with the frame that all have.
var templates = func() map[string]*template.Template {
	words := template.FuncMap{"number": number, "plural": plural, "short": short, "iso": iso, "age": age, "clock": clock,
		"recurs": recurs, "cut": func(text string) string { return cut(text, mostReason) }, "channelURL": channelURL,
		"consumerURL": consumerURL, "messageURL": messageURL, "jobURL": jobURL}
	frame := template.Must(template.New("frame.html").Funcs(words).ParseFS(pageFiles, "pages/frame.html"))
	entries, err := pageFiles.ReadDir("pages")
	if err != nil {
		panic(err) // they are embedded
	}
	all := map[string]*template.Template{}
	for _, e := range entries {
		name := e.Name()
		if name == "frame.html" {
			continue
		}
		all[name[:len(name)-len(".html")]] = template.Must(template.Must(frame.Clone()).ParseFS(pageFiles, "pages/"+name))
	}
	return all
}()

// A frame is what every page shows around its content.
type frame struct {
	Title    string // the state, in words
	Section  string // of the navigation
	Troubled int
	Session  bool        // the reader has logged in
	Bare     bool        // there is no navigation, and no script
	Live     bool        // the page is brought up to date
	Framing  bool        // the page has a frame
	Portal   *portal     // the reader came by a link; nil: not so
	Stores   []storeLink // the stores of the installation; nil: there is one
	Narrow   []navLink   // the navigation of a login that opens few pages; nil: it opens all
	Query    string
	Nonce    string // of the script
	Now      time.Time
	Version  string
	Content  any
}

// protect sets the headers that every answer has.
func protect(rc *fasthttp.RequestCtx) {
	h := &rc.Response.Header
	h.Set(fasthttp.HeaderContentSecurityPolicy, pagePolicy)
	h.Set(fasthttp.HeaderXContentTypeOptions, "nosniff")
	// With no-referrer, browsers send "Origin: null" with the forms of the dashboard itself.
	h.Set(fasthttp.HeaderReferrerPolicy, "same-origin")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
}

var errLong = errors.New("ui: a page is longer than it may be")

// A bounded is a buffer that ends at mostPage.
type bounded struct{ bytes.Buffer }

func (b *bounded) Write(p []byte) (int, error) {
	if b.Len()+len(p) > mostPage {
		return 0, errLong
	}
	return b.Buffer.Write(p)
}

// render answers with a page. Nothing of it is sent before all of it is made.
func (d *Dashboard) render(rc *fasthttp.RequestCtx, status int, name string, f frame) {
	if !f.Bare {
		f.Nonce = newNonce()
		policy := scriptPolicy(f.Nonce)
		if f.Framing {
			policy += framePolicy
		}
		rc.Response.Header.Set(fasthttp.HeaderContentSecurityPolicy, policy)
	}
	body, made := d.made(name, "frame.html", f)
	if !made {
		status = fasthttp.StatusInternalServerError
	}
	rc.SetStatusCode(status)
	rc.Response.Header.Set(fasthttp.HeaderCacheControl, "no-store")
	rc.SetContentType(apitype.MediaHTML + "; charset=utf-8")
	rc.Response.SetBodyRaw(body)
	if f.Portal != nil {
		d.frameable(rc)
	}
}

// made makes a part of a page; where that fails, of one that says so.
func (d *Dashboard) made(name, part string, f frame) (body []byte, made bool) {
	var b bounded
	err := templates[name].ExecuteTemplate(&b, part, f)
	if err != nil {
		d.o.Log.Error("a page of the dashboard cannot be made", "page", name, "error", err)
		b.Reset()
		f.Title, f.Content = "The broker failed to make this page.", "internal"
		_ = templates["refused"].ExecuteTemplate(&b, part, f)
	}
	return b.Bytes(), err == nil
}

// assets are the files that pages load, by path.
var assets = map[string]*asset.File{
	"/ui/style.css": asset.New(apitype.MediaCSS+"; charset=utf-8", pagePolicy, styleSheet),
	"/ui/icon.svg":  asset.New(apitype.MediaSVG, pagePolicy, icon),
	"/ui/script.js": asset.New(apitype.MediaScript+"; charset=utf-8", pagePolicy, script()),
}

// channelURL and consumerURL are the pages of a channel and of a consumer. IDs need no escaping in a path beyond
// what html/template does.
func channelURL(channel string) string { return Prefix + "channel/" + channel }

func consumerURL(channel, consumer string) string {
	return channelURL(channel) + "/consumer/" + consumer
}
