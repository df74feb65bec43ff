package ui

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/model/problem"
)

const (
	cookieName = "penstock_ui"
	// sessionFor is how long a session lasts: a working day.
	sessionFor = 12 * time.Hour
	// mostFailures bounds the failed logins of one address in a minute. There is no bound for all: the failures of
	// some would close the dashboard to everybody else.
	mostFailures = 10
	// longestNext bounds the page that a login leads to.
	longestNext = 2048
)

// admits reports whether the request has a session of the admin that lasts.
func (d *Dashboard) admits(rc *fasthttp.RequestCtx) bool {
	of, ok := d.sessionOf(rc)
	return ok && of == ""
}

// sessionOf returns whose session a request has; "": the admin's. ok: it has one that lasts.
func (d *Dashboard) sessionOf(rc *fasthttp.RequestCtx) (of string, ok bool) {
	text := string(rc.Request.Header.Cookie(cookieName))
	at := strings.LastIndexByte(text, '.')
	if at < 0 || d.o.AdminToken == "" || len(text) > 256 || !same(d.sign(text[:at]), text[at+1:]) {
		return "", false
	}
	until, rest, ok := strings.Cut(text[:at], "-")
	seconds, err := strconv.ParseInt(until, 36, 64)
	if !ok || err != nil || !time.Now().Before(time.Unix(seconds, 0)) {
		return "", false
	}
	if dash := strings.IndexByte(rest, '-'); dash >= 0 { // random letters have none
		return rest[dash:], true
	}
	return "", true
}

// same compares signatures in constant time.
func same(a, b string) bool { return hmac.Equal([]byte(a), []byte(b)) }

// sign returns the signature over a session.
func (d *Dashboard) sign(body string) string {
	inner := hmac.New(sha256.New, d.o.Key)
	inner.Write([]byte("dashboard\x00" + d.o.AdminToken))
	outer := hmac.New(sha256.New, inner.Sum(nil))
	outer.Write([]byte(body))
	return base64.RawURLEncoding.EncodeToString(outer.Sum(nil))
}

// newSession returns the value of a cookie: when the session ends, random letters, and a signature.
func (d *Dashboard) newSession(until time.Time) string { return d.newSessionOf(until, "") }

// newSessionOf is newSession for a session that is not the admin's: of begins with a dash.
func (d *Dashboard) newSessionOf(until time.Time, of string) string {
	body := strconv.FormatInt(until.Unix(), 36) + "-" + rand.Text() + of
	return body + "." + d.sign(body)
}

// setCookie sets the cookie until a time; a time in the past removes it.
func setCookie(rc *fasthttp.RequestCtx, value string, until time.Time) {
	var c fasthttp.Cookie
	c.SetKey(cookieName)
	c.SetValue(value)
	c.SetPath("/ui")
	c.SetHTTPOnly(true)
	c.SetSameSite(fasthttp.CookieSameSiteStrictMode)
	c.SetExpire(until)
	c.SetSecure(secure(rc))
	rc.Response.Header.SetCookie(&c)
}

// secure reports whether the browser speaks TLS: to this broker, or to a proxy that says so. One that lies makes
// its own cookie useless.
func secure(rc *fasthttp.RequestCtx) bool {
	return rc.IsTLS() || strings.EqualFold(string(rc.Request.Header.Peek(fasthttp.HeaderXForwardedProto)), "https")
}

// A loginForm is what the page of the login shows.
type loginForm struct {
	Problem  string
	Next     string // the page to go to
	Possible bool   // there is an admin token
}

// askLogin leads to the login, and from there back.
func (d *Dashboard) askLogin(rc *fasthttp.RequestCtx) {
	to := "/ui/login"
	if next := string(rc.RequestURI()); rc.IsGet() && next != Prefix && local(next) {
		to += "?next=" + url.QueryEscape(next)
	}
	redirect(rc, to)
}

// local reports whether a text is a page of the dashboard, and no address elsewhere.
func local(next string) bool {
	if !strings.HasPrefix(next, Prefix) || len(next) > longestNext || strings.HasPrefix(next, "/ui/login") {
		return false
	}
	return !strings.ContainsFunc(next, func(r rune) bool { return r <= ' ' || r > '~' || r == '\\' })
}

func (d *Dashboard) showLogin(rc *fasthttp.RequestCtx, status int, said, next string) {
	if !local(next) {
		next = Prefix
	}
	title := "Log in"
	if d.o.AdminToken == "" {
		title = "Nobody can log in"
	}
	d.render(rc, status, "login", frame{Title: title, Bare: true, Now: d.o.Now().UTC(), Version: d.o.Version,
		Content: loginForm{said, next, d.o.AdminToken != ""}})
}

// login compares a token, and begins a session.
func (d *Dashboard) login(ctx context.Context, rc *fasthttp.RequestCtx, from Source) {
	var form fasthttp.Args
	form.ParseBytes(rc.PostBody())
	next, token := string(form.Peek("next")), form.Peek("token")
	client := d.o.Client(rc)
	switch {
	case !ownForm(rc):
		d.showLogin(rc, fasthttp.StatusForbidden, "The login came from a page of another site.", next)
	case d.o.AdminToken == "":
		d.showLogin(rc, fasthttp.StatusForbidden, "", next)
	case d.logins.Limited(client) > 0 || d.o.Limited(client):
		rc.Response.Header.Set(fasthttp.HeaderRetryAfter, "60")
		d.showLogin(rc, fasthttp.StatusTooManyRequests, "Too many logins have failed. Try again in a minute.", next)
	case catalogue.TokenMatches(token, d.o.AdminToken):
		until := time.Now().Add(sessionFor)
		d.begin(rc, d.newSession(until), until, next)
	default:
		g, err := from.Grant(ctx, token)
		if err == nil {
			until := time.Now().Add(sessionFor)
			if !g.Until.IsZero() && g.Until.Before(until) {
				until = g.Until
			}
			d.begin(rc, d.newGrantSession(&g, until), until, next)
			return
		}
		if said := problem.FromChange(err); said.Status >= fasthttp.StatusInternalServerError {
			d.showLogin(rc, said.Status, said.Detail, next)
			return
		}
		d.logins.Failed(client)
		d.o.Failed(client)
		d.o.Log.Warn("a login to the dashboard failed", "address", client.String())
		d.showLogin(rc, fasthttp.StatusForbidden, "This is not the admin token, and no API token that lasts.", next)
	}
}

// begin sets the cookie of a session, and leads to a page.
func (d *Dashboard) begin(rc *fasthttp.RequestCtx, session string, until time.Time, next string) {
	setCookie(rc, session, until)
	if !local(next) {
		next = Prefix
	}
	redirect(rc, next)
}

// logout removes the cookie.
func (d *Dashboard) logout(rc *fasthttp.RequestCtx) {
	if !ownForm(rc) {
		d.showLogin(rc, fasthttp.StatusForbidden, "The logout came from a page of another site.", "")
		return
	}
	setCookie(rc, "", time.Unix(1, 0))
	redirect(rc, "/ui/login")
}

// ownForm reports whether a form is one of the dashboard, as far as the browser says where it is from.
func ownForm(rc *fasthttp.RequestCtx) bool {
	h := &rc.Request.Header
	for _, site := range h.PeekAll("Sec-Fetch-Site") {
		if s := string(site); s != "same-origin" && s != "none" {
			return false
		}
	}
	for _, origin := range h.PeekAll(fasthttp.HeaderOrigin) {
		u, err := url.Parse(string(origin))
		if err != nil || u.Host == "" || !strings.EqualFold(u.Host, string(h.Host())) {
			return false
		}
	}
	return true
}
