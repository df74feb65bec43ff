package ui

import (
	"context"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/internal/model/problem"
)

// An action is something that a reader of the dashboard can do. It has two steps: a page that says what would happen,
// and a form that does it. The form is bound to what the page said.
type action struct {
	name string // on buttons
	ask  func(ctx context.Context, v *view, t *target) (question, error)
	do   func(v *view, t *target) (effect, error)
}

// A target is what an action is done to.
type target struct {
	Channel, Consumer string // Consumer is "" for an action on a channel
	Message           string // of an action on a message
	Group             string // of an action on a group; then the others are ""
	Action            string
	Query             url.Values // what else the action needs
}

// URL is the page that asks, API the path of the target in the API.
func (t *target) URL() string {
	to := t.Page() + "/action/" + t.Action
	if t.Group != "" {
		to = Prefix + "group/" + t.Group + "/action/" + t.Action
	}
	if len(t.Query) > 0 {
		to += "?" + t.Query.Encode()
	}
	return to
}

func (t *target) API() string {
	if t.Group != "" {
		return "/group/" + t.Group
	}
	return "/" + strings.TrimPrefix(t.Page(), Prefix)
}

// Page is the page of the target.
func (t *target) Page() string {
	switch {
	case t.Group != "":
		return groupsURL
	case t.Message != "":
		return messageURL(t.Channel, t.Message)
	case t.Consumer == "":
		return channelURL(t.Channel)
	}
	return consumerURL(t.Channel, t.Consumer)
}

// Name is the target in a sentence.
func (t *target) Name() string {
	switch {
	case t.Group != "":
		return t.Group
	case t.Consumer == "":
		return t.Channel
	}
	return t.Consumer + " of " + t.Channel
}

// A question is what an action would do.
type question struct {
	Title   string
	Hits    string   // how many jobs it hits
	Then    []string // what follows, in sentences
	Bound   string   // the number of jobs that it hits, or the state that it changes
	Of      string   // what the number counts; "": Bound is a state
	Nothing bool     // there is nothing to do
	Harm    bool     // it cannot be taken back
}

// An effect is what an action did.
type effect struct {
	to     string // the page that shows it; "": the page of the target, with a sentence
	n      int64  // jobs, for that sentence
	result any    // what the template "result" shows instead
}

// A confirmation is the page of a question.
type confirmation struct {
	question
	Target *target
	Name   string // of the button
	Seal   string
	Again  string // why it is asked once more; "": it is not
}

var (
	errReadOnly = problem.New(fasthttp.StatusMethodNotAllowed, "method_not_allowed",
		"This dashboard only reads: BROKER_UI is read-only.")
	errNoAction    = problem.New(fasthttp.StatusNotFound, "no_such_path", "The dashboard has no action of this name.")
	errForeignForm = problem.New(fasthttp.StatusForbidden, "origin_not_allowed",
		"The form came from a page of another site.")
)

// act shows what an action would do, or does it.
func (d *Dashboard) act(ctx context.Context, rc *fasthttp.RequestCtx, visit Visit) {
	v := d.view(rc, visit)
	t := &target{Channel: v.id("channel"), Consumer: v.id("consumer"), Group: v.id("group"), Action: v.id("action"),
		Query: v.query("fingerprint", "canary", "redrive")}
	actions := channelActions
	switch {
	case t.Group != "":
		actions = groupActions
	case t.Consumer != "":
		actions = consumerActions
	}
	a, known := actions[t.Action]
	var refusal error
	switch {
	case d.o.ReadOnly:
		refusal = errReadOnly
	case !known || t.Action == "delete" && !d.o.AllowDelete:
		refusal = errNoAction
	case rc.IsPost() && !ownForm(rc):
		refusal = errForeignForm
	}
	if refusal != nil {
		d.refuse(v, visit, refusal)
		return
	}
	q, err := a.ask(ctx, v, t)
	if err != nil {
		d.refuse(v, visit, err)
		return
	}
	p := confirmation{question: q, Target: t, Name: a.name}
	status := fasthttp.StatusOK
	if rc.IsPost() {
		if status, p.Again = d.stillFits(v, t, &q); p.Again == "" {
			d.perform(v, visit, a, t)
			return
		}
	}
	p.Seal = d.seal(v, t, q.Bound)
	d.answer(v, status, "confirm", q.Title, p)
}

// stillFits decides whether a form still fits what its action would do. If it does not, it returns why, for the reader.
func (d *Dashboard) stillFits(v *view, t *target, q *question) (status int, again string) {
	var form fasthttp.Args
	form.ParseBytes(v.rc.PostBody())
	bound := string(form.Peek("bound"))
	switch {
	case !d.sealed(v, t, bound, string(form.Peek("seal"))):
		return fasthttp.StatusForbidden, "Nothing was done: the page was older than an hour, or of another login."
	case q.Nothing:
		return fasthttp.StatusConflict, "Nothing was done: there is nothing to do any more."
	case q.Of == "" && bound != q.Bound:
		return fasthttp.StatusConflict, "Nothing was done: meanwhile the state changed from " + strings.ToLower(bound) +
			" to " + strings.ToLower(q.Bound) + "."
	case q.Of != "" && differ(bound, q.Bound):
		was, _ := strconv.ParseInt(bound, 10, 64)
		return fasthttp.StatusConflict, "Nothing was done: the number has changed. It was " + plural(int(was), q.Of) + "."
	}
	return 0, ""
}

// differ reports whether two numbers are more than a hundredth apart. Below a hundred that is any change; above, the
// jobs of a busy consumer change while a page is read.
func differ(was, is string) bool {
	a, err := strconv.ParseInt(was, 10, 64)
	b, err2 := strconv.ParseInt(is, 10, 64)
	return err != nil || err2 != nil || max(a-b, b-a)*100 > a
}

// perform does an action, and says so in the log.
func (d *Dashboard) perform(v *view, visit Visit, a *action, t *target) {
	out, err := a.do(v, t)
	log := d.o.Log.With("action", t.Action, "channel", t.Channel, "consumer", t.Consumer, "group", t.Group, "address",
		d.o.Client(v.rc).String(), "request_id", string(v.rc.Response.Header.Peek("X-Request-ID")))
	if v.portal != nil {
		log = log.With("by_link", true)
	}
	if v.grant != nil {
		log = log.With("token", v.grant.ID)
	}
	if err != nil {
		log.Warn("an action by the dashboard was refused", "error", err)
		d.refuse(v, visit, err)
		return
	}
	log.Info("an action was done by the dashboard", "jobs", out.n)
	switch {
	case out.result != nil:
		d.answer(v, fasthttp.StatusOK, "result", "", out.result)
	case out.to != "":
		redirect(v.rc, out.to)
	default:
		redirect(v.rc, t.Page()+"?done="+url.QueryEscape(d.doneOf(t, out.n)))
	}
}

// do sends a request to a route of the API, in the name of the reader.
func (v *view) do(r Request) (Answer, error) {
	r.Who = v.who()
	return v.src.Do(r)
}

// who is the reader, for the audit log; "": a request without the dashboard would be of the same.
func (v *view) who() string {
	switch {
	case v.portal != nil:
		return "portal link of consumer " + v.portal.channel + "/" + v.portal.consumer
	case v.grant != nil:
		return "API token " + v.grant.ID
	case v.open:
		return ""
	}
	return "dashboard session"
}

// refuse answers with a page that says why there is none, or why nothing was done.
func (d *Dashboard) refuse(v *view, visit Visit, err error) {
	said := problem.FromChange(err)
	if said.Status == fasthttp.StatusMethodNotAllowed {
		v.rc.Response.Header.Set(fasthttp.HeaderAllow, "")
	}
	if said.Status >= fasthttp.StatusInternalServerError {
		d.o.Log.Warn("a page of the dashboard cannot be shown", "page", visit.Page, "error", err)
	}
	d.answer(v, said.Status, "refused", said.Detail, said.Code)
}

// answer answers with a page of the section in which its target is.
func (d *Dashboard) answer(v *view, status int, template, title string, content any) {
	section := "channels"
	if v.id("consumer") != "" {
		section = "consumers"
	}
	if r, ok := content.(result); ok {
		title = r.Title
	}
	d.render(v.rc, status, template, v.frame(title, section, content))
}

// sealFor is how long the form of a page may be sent.
const sealFor = time.Hour

// session names the session of a request, or the link by which it came; "" where none was needed.
func (v *view) session() string {
	if v.portal != nil {
		return string(v.rc.Request.Header.Cookie(portalCookie))
	}
	if _, ok := v.d.sessionOf(v.rc); !ok {
		return ""
	}
	return string(v.rc.Request.Header.Cookie(cookieName))
}

// seal returns the signature over what a page said of a target, for its session and until a time.
func (d *Dashboard) seal(v *view, t *target, bound string) string {
	until := strconv.FormatInt(time.Now().Add(sealFor).Unix(), 36)
	return until + "." + d.sign("action\n"+v.session()+"\n"+t.URL()+"\n"+bound+"\n"+until)
}

// sealed reports whether a seal is one of seal that lasts.
func (d *Dashboard) sealed(v *view, t *target, bound, seal string) bool {
	until, signature, ok := strings.Cut(seal, ".")
	seconds, err := strconv.ParseInt(until, 36, 64)
	return ok && err == nil && time.Now().Before(time.Unix(seconds, 0)) &&
		same(signature, d.sign("action\n"+v.session()+"\n"+t.URL()+"\n"+bound+"\n"+until))
}

// doneOf is the parameter with which the page of a target says what was done: the action, the jobs and a signature.
func (d *Dashboard) doneOf(t *target, n int64) string {
	text := t.Action + "." + strconv.FormatInt(n, 10)
	return text + "." + d.sign("done\n"+t.Page()+"\n"+text)
}

// said returns the sentence for the parameter done; "": nothing was done.
func (v *view) said() string {
	parts := strings.Split(v.query("done").Get("done"), ".")
	if len(parts) != 3 {
		return ""
	}
	n, err := strconv.Atoi(parts[1])
	t := &target{Channel: v.id("channel"), Consumer: v.id("consumer"), Action: parts[0]}
	if string(v.rc.Path()) == groupsURL {
		t.Group = "any" // its page is that of all
	}
	if err != nil || !same(strings.Join(parts, "."), v.d.doneOf(t, int64(n))) {
		return ""
	}
	switch t.Action {
	case "retry":
		return "Done: " + plural(n, "delayed job") + " made due. The numbers below are at most ten seconds old."
	case "purge":
		return "Done: " + plural(n, "job") + " purged. The numbers below are at most ten seconds old."
	case "delete":
		return "Done: " + plural(n, "dead letter") + " deleted. The numbers below are at most ten seconds old."
	case "pause":
		return "Done: it is paused."
	case "resume":
		return "Done: it goes on."
	case "revive":
		return "Done: it is revived."
	}
	return "Done."
}
