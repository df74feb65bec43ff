package ui

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"errors"
	"html/template"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/internal/model/apitype"
)

// mostPage bounds a page, bytes. Lists and payloads have bounds of their own, which together are less.
const mostPage = 2 << 20

// pagePolicy allows a page its style sheet, its icon and its forms.
const pagePolicy = "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; " +
	"frame-ancestors 'none'; base-uri 'none'"

var (
	//go:embed pages/*.html
	pageFiles embed.FS
	//go:embed assets/style.css
	styleSheet []byte
	//go:embed assets/icon.svg
	icon []byte
)

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
	Session  bool // the reader has logged in
	Bare     bool // there is no navigation
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
	var b bounded
	err := templates[name].Execute(&b, f)
	if err != nil {
		d.o.Log.Error("a page of the dashboard cannot be made", "page", name, "error", err)
		b.Reset()
		status, f.Title, f.Content = fasthttp.StatusInternalServerError, "The broker failed to make this page.", "internal"
		_ = templates["refused"].Execute(&b, f)
	}
	rc.SetStatusCode(status)
	rc.Response.Header.Set(fasthttp.HeaderCacheControl, "no-store")
	rc.SetContentType(apitype.MediaHTML + "; charset=utf-8")
	rc.Response.SetBodyRaw(b.Bytes())
}

// An asset is a file that pages load.
type asset struct {
	media string
	body  []byte
	etag  string
}

var assets = map[string]asset{
	"/ui/style.css": newAsset("text/css; charset=utf-8", styleSheet),
	"/ui/icon.svg":  newAsset("image/svg+xml", icon),
}

func newAsset(media string, body []byte) asset {
	digest := sha256.Sum256(body)
	return asset{media, body, `"` + base64.RawURLEncoding.EncodeToString(digest[:15]) + `"`}
}

// serveAsset answers with a file, which a browser asks for again only to hear that it is the same.
func serveAsset(rc *fasthttp.RequestCtx, path string) {
	a := assets[path]
	h := &rc.Response.Header
	h.Set(fasthttp.HeaderETag, a.etag)
	h.Set(fasthttp.HeaderCacheControl, "no-cache")
	if string(rc.Request.Header.Peek(fasthttp.HeaderIfNoneMatch)) == a.etag {
		rc.SetStatusCode(fasthttp.StatusNotModified)
		return
	}
	rc.SetContentType(a.media)
	rc.Response.SetBodyRaw(a.body)
}

// channelURL and consumerURL are the pages of a channel and of a consumer. IDs need no escaping in a path beyond
// what html/template does.
func channelURL(channel string) string { return Prefix + "channel/" + channel }

func consumerURL(channel, consumer string) string {
	return channelURL(channel) + "/consumer/" + consumer
}
