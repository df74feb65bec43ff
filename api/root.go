package api

import (
	"bytes"
	"context"
	"crypto/sha256"
	_ "embed" // the page
	"encoding/base64"
	"html/template"
	"strconv"
	"strings"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/internal/feature/ui"
	"github.com/penstock-broker/penstock/internal/model/apitype"
)

// documentation is where the pages of the project are.
const documentation = "https://github.com/penstock-broker/penstock"

var (
	//go:embed root.html
	rootPage string
	//go:embed root.css
	rootStyle string

	rootTemplate = template.Must(template.New("root").Parse(rootPage))
	rootPolicy   = "default-src 'none'; style-src 'sha256-" + hashOf(rootStyle) +
		"'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)

func hashOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return base64.StdEncoding.EncodeToString(sum[:])
}

// getRoot says what this is: as a page to those who prefer one, as JSON to all others. It says the same
// to everybody, and nothing of what the broker holds. With a dashboard it leads those who prefer a page there.
func (a *API) getRoot(_ context.Context, rc *fasthttp.RequestCtx) error {
	page := prefersPage(rc.Request.Header.PeekAll(fasthttp.HeaderAccept))
	h := &rc.Response.Header
	if page && a.o.UI != nil {
		h.Set(fasthttp.HeaderVary, fasthttp.HeaderAccept)
		a.toDashboard(rc)
		return nil
	}
	body, media, err := a.root(page)
	if err != nil {
		return err
	}
	etag := tagOf(body)
	h.Set(fasthttp.HeaderETag, etag)
	h.Set(fasthttp.HeaderVary, fasthttp.HeaderAccept)
	h.Set(fasthttp.HeaderCacheControl, "public, max-age=60")
	if notModified(rc, etag, time.Time{}, false) {
		rc.SetStatusCode(fasthttp.StatusNotModified)
		return nil
	}
	h.Set(fasthttp.HeaderContentSecurityPolicy, rootPolicy)
	h.Set(fasthttp.HeaderXContentTypeOptions, "nosniff")
	h.Set(fasthttp.HeaderReferrerPolicy, "no-referrer")
	rc.SetContentType(media)
	rc.Response.SetBodyRaw(body)
	return nil
}

// toDashboard leads a browser to the dashboard.
func (a *API) toDashboard(rc *fasthttp.RequestCtx) {
	rc.Response.Header.Set(fasthttp.HeaderLocation, ui.Prefix)
	rc.Response.Header.Set(fasthttp.HeaderCacheControl, "no-store")
	rc.SetStatusCode(fasthttp.StatusSeeOther)
}

// root returns the representation and its media type.
func (a *API) root(page bool) (body []byte, media string, err error) {
	if page {
		var b bytes.Buffer
		err = rootTemplate.Execute(&b, struct {
			Style         template.CSS
			Version, Docs string
		}{template.CSS(rootStyle), a.o.Version.Version, documentation})
		return b.Bytes(), apitype.MediaHTML + "; charset=utf-8", err
	}
	body, err = encode(apitype.Root{
		Name: "Penstock", About: "A message broker over HTTP.", Version: a.o.Version.Version,
		Links: apitype.RootLinks{
			Documentation: documentation, Channels: "/channels", Producers: "/producers",
			Ready: "/readyz", Live: "/livez", Version: "/version", Metrics: "/metrics",
		},
	})
	return body, apitype.MediaJSON, err
}

// prefersPage reports whether HTML fits the values of Accept better than JSON (RFC 9110, 12.5.1). If both
// fit alike, the more specific range decides, then the order. Without any of them it is JSON.
func prefersPage(accept [][]byte) bool {
	page, other := fit{}, fit{}
	at := 0
	for _, value := range accept {
		for item := range strings.SplitSeq(string(value), ",") {
			at++
			name, parameters, _ := strings.Cut(item, ";")
			name = strings.ToLower(strings.TrimSpace(name))
			quality, ok := qualityOf(parameters)
			if !ok {
				continue
			}
			page.take(name, apitype.MediaHTML, quality, at)
			other.take(name, apitype.MediaJSON, quality, at)
		}
	}
	switch {
	case page.quality != other.quality:
		return page.quality > other.quality
	case page.quality == 0 || page.exact != other.exact:
		return page.quality > 0 && page.exact > other.exact
	}
	return page.at < other.at
}

// A fit is how a media type fits an Accept: the quality of the most specific range for it, how specific
// that is (3: the type itself, 1: any type) and its place. The zero value: not at all.
type fit struct {
	quality   float64
	exact, at int
}

// take takes a range into account.
func (f *fit) take(name, media string, quality float64, at int) {
	kind, _, _ := strings.Cut(media, "/")
	exact := 0
	switch name {
	case media:
		exact = 3
	case kind + "/*":
		exact = 2
	case "*/*":
		exact = 1
	}
	if exact > f.exact {
		*f = fit{quality, exact, at}
	}
}

// qualityOf returns the parameter q, by default 1; ok is false for one that is no quality.
func qualityOf(parameters string) (quality float64, ok bool) {
	for parameter := range strings.SplitSeq(parameters, ";") {
		name, value, _ := strings.Cut(parameter, "=")
		if strings.EqualFold(strings.TrimSpace(name), "q") {
			quality, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
			return quality, err == nil && quality >= 0 && quality <= 1
		}
	}
	return 1, true
}
