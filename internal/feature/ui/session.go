package ui

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/tool/share"
)

const (
	cookieName = "penstock_ui"
	// sessionFor is how long a session lasts: a working day.
	sessionFor = 12 * time.Hour
	// failuresOfOne and failuresOfAll bound the failed logins in a minute: of one address, and of all.
	failuresOfOne, failuresOfAll = 10, 300
	// longestNext bounds the page that a login leads to.
	longestNext = 2048
)

// admits reports whether the request has a session that lasts.
func (d *Dashboard) admits(rc *fasthttp.RequestCtx) bool {
	text := string(rc.Request.Header.Cookie(cookieName))
	body, signature, ok := strings.Cut(text, ".")
	if !ok || d.o.AdminToken == "" || len(text) > 256 {
		return false
	}
	until, _, ok := strings.Cut(body, "-")
	seconds, err := strconv.ParseInt(until, 36, 64)
	return ok && err == nil && same(d.sign(body), signature) &&
		time.Now().Before(time.Unix(seconds, 0))
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
func (d *Dashboard) newSession(until time.Time) string {
	body := strconv.FormatInt(until.Unix(), 36) + "-" + rand.Text()
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
func (d *Dashboard) login(rc *fasthttp.RequestCtx) {
	var form fasthttp.Args
	form.ParseBytes(rc.PostBody())
	next, token := string(form.Peek("next")), form.Peek("token")
	key := share.Address(share.AddressOf(rc.RemoteAddr()))
	switch {
	case !ownForm(rc):
		d.showLogin(rc, fasthttp.StatusForbidden, "The login came from a page of another site.", next)
	case d.o.AdminToken == "":
		d.showLogin(rc, fasthttp.StatusForbidden, "", next)
	case !d.tries.may(key, time.Now()):
		rc.Response.Header.Set(fasthttp.HeaderRetryAfter, "60")
		d.showLogin(rc, fasthttp.StatusTooManyRequests, "Too many logins have failed. Try again in a minute.", next)
	case !catalogue.TokenMatches(token, d.o.AdminToken):
		d.tries.failed(key, time.Now())
		d.o.Log.Warn("a login to the dashboard failed", "address", rc.RemoteAddr().String())
		d.showLogin(rc, fasthttp.StatusForbidden, "This is not the admin token.", next)
	default:
		until := time.Now().Add(sessionFor)
		setCookie(rc, d.newSession(until), until)
		if !local(next) {
			next = Prefix
		}
		redirect(rc, next)
	}
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

// tries counts the failed logins of the present minute. It has at most failuresOfAll addresses.
type tries struct {
	mu     sync.Mutex
	minute int64
	of     map[share.Key]int
	all    int
}

// turn begins the count of another minute.
func (t *tries) turn(now time.Time) {
	if minute := now.Unix() / 60; minute != t.minute || t.of == nil {
		t.minute, t.of, t.all = minute, map[share.Key]int{}, 0
	}
}

// may reports whether a login may be tried.
func (t *tries) may(of share.Key, now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.turn(now)
	return t.of[of] < failuresOfOne && t.all < failuresOfAll
}

func (t *tries) failed(of share.Key, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.turn(now)
	t.of[of]++
	t.all++
}
