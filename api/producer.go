package api

import (
	"context"
	"crypto/rand"
	"reflect"
	"strconv"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/apitype"
	"github.com/penstock-broker/penstock/internal/model/atrest"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/model/policy"
	"github.com/penstock-broker/penstock/internal/model/problem"
	"github.com/penstock-broker/penstock/internal/tool/egress"
)

// viewProducer returns the view of a producer. Its secrets are masked, except the named settings.
func (a *API) viewProducer(p *durable.Producer, reveal ...string) apitype.Producer {
	view := apitype.Producer{ID: p.ID, Name: p.Name, Token: atrest.Shown(p.Token), ChangedAt: changedAt(p.ChangedAt),
		Signed: p.PublishSecret != ""}
	// A test holds members of apitype.Producer equal to the names of package policy.
	members := reflect.ValueOf(&view).Elem()
	for _, s := range a.settings(p.Settings, reveal...) {
		if s.Value == "none" { // of a rate
			continue
		}
		members.FieldByName(s.Name).SetString(s.Value)
	}
	return view
}

// settings returns the settings of a producer's record, with the bounds of the installation where it
// has none of its own.
func (a *API) settings(record string, reveal ...string) []policy.Setting {
	shown := policy.ShowSender(record, reveal...)
	for i, s := range shown {
		bound := map[string]int64{"MaxStoredBytes": a.o.MaxStored, "MaxScheduled": a.o.MaxScheduled}[s.Name]
		if s.Value == "" && bound > 0 {
			shown[i].Value = strconv.FormatInt(bound, 10)
		}
	}
	return shown
}

// sender returns the change that the settings in the form make to a producer's record; nil, which
// keeps the record, when the form has none.
func (a *API) sender(f form) (func(record string) (string, error), error) {
	fields := f.of(policy.SenderNames())
	if len(fields) == 0 {
		return nil, nil
	}
	merge := func(record string) (string, error) { return policy.MergeSender(record, fields) }
	if _, err := merge(""); err != nil {
		return nil, badField(err)
	}
	if to := fields["replyUrl"]; to != "" && a.o.CheckCallback != nil {
		if err := a.o.CheckCallback(to); err != nil {
			return nil, problem.Newf(fasthttp.StatusBadRequest, "callback_refused",
				"The broker may not post to this replyUrl: %s.", egress.Say(err))
		}
	}
	return merge, nil
}

// minPublishSecret is the length below which a secret could be guessed.
const minPublishSecret = 16

// publishSecret returns the field "publishSecret": nil, which keeps the stored secret, when it is
// absent. An empty field removes the secret. It is never shown.
func (f form) publishSecret() (*string, error) {
	secret := f.field("publishSecret")
	if secret != nil && *secret != "" && (len(*secret) < minPublishSecret || len(*secret) > maxTokenBytes ||
		!visibleASCII(*secret)) {
		return nil, problem.New(fasthttp.StatusBadRequest, "invalid_publish_secret",
			"The publishSecret must be 16 to 255 visible ASCII characters without spaces, or empty.")
	}
	return secret, nil
}

func producerPath(id string) string { return "/producer/" + id }

// noTime is the Last-Modified of an empty list without a parent resource.
var noTime = time.Unix(0, 0).UTC()

// readPut reads the fields that the PUTs of the three resources have in common.
func readPut(rc *fasthttp.RequestCtx, id string, kind *bodyKind) (durable.Put, document, error) {
	f, err := readForm(rc, kind)
	if err == nil {
		err = f.is(id)
	}
	if err != nil {
		return durable.Put{}, document{}, err
	}
	p := durable.Put{ID: id, NewToken: rand.Text()} // 130 bits from the system's generator
	if p.Name, err = f.name(); err != nil {
		return p, document{}, err
	}
	p.Token, err = f.token()
	return p, f, err
}

func (a *API) putProducer(ctx context.Context, rc *fasthttp.RequestCtx) error {
	if err := free(rc, "producer"); err != nil {
		return err
	}
	put, f, err := readPut(rc, param(rc, "producer"), &producerBody)
	if err != nil {
		return err
	}
	if put.PublishSecret, err = f.publishSecret(); err != nil {
		return err
	}
	if err = a.settleProducer(ctx, &f, put.ID); err != nil {
		return err
	}
	if put.Settings, err = a.sender(f.form); err != nil {
		return err
	}
	err = a.preconditions(ctx, rc, &put, func() (*revision, error) {
		p := a.o.Catalogue.Producer(put.ID)
		if p == nil {
			return nil, nil
		}
		return &revision{a.producerFor(rc, p), p.ChangedAt}, nil
	})
	if err != nil {
		return err
	}
	put.Replies = a.o.FollowReplies
	p, created, err := a.o.Store.PutProducer(ctx, put)
	if err != nil {
		return err
	}
	a.changed(ctx, rc)
	if put.Settings != nil && a.o.EnsureReplies != nil && policy.SenderOf(p.Settings).ReplyURL != "" {
		// After a failure the next reply makes the channel.
		if _, err := a.o.EnsureReplies(ctx, &p); err != nil {
			return err
		}
	}
	var reveal []string
	if f.form["signingSecret"] != "" {
		reveal = []string{"signingSecret"} // once: only this answer has a secret that was generated
	}
	view, stable := a.producerFor(rc, &p, reveal...), a.producerFor(rc, &p)
	showOnce(rc, created || put.Token != nil, &view.Token, brought(put.Token, p.Token))
	return answerPut(rc, created, producerPath(p.ID), view, stable, p.ChangedAt)
}

// producerFor returns a producer as a request may see it.
func (a *API) producerFor(rc *fasthttp.RequestCtx, p *durable.Producer, reveal ...string) apitype.Producer {
	view := a.viewProducer(p, reveal...)
	a.veil(rc, &view.Token)
	return view
}

// answerPut answers a PUT. The answer to a creation has a Location (RFC 9110, 15.3.2). Its tag is that of stable,
// which a GET answers: the view may have what is shown once.
func answerPut(rc *fasthttp.RequestCtx, created bool, path string, view, stable any, at time.Time) error {
	if created {
		setLocation(rc, path)
	}
	tagged, err := encode(stable)
	if err != nil {
		return err
	}
	body, err := encode(view)
	if err != nil {
		return err
	}
	return answerTagged(rc, putStatus(created), body, tagOf(tagged), at, false)
}

// setLocation sets a relative Location, as all links here are.
func setLocation(rc *fasthttp.RequestCtx, path string) {
	rc.Response.Header.Set(fasthttp.HeaderLocation, path)
}

func (a *API) getProducer(ctx context.Context, rc *fasthttp.RequestCtx) error {
	if err := a.fresh(ctx); err != nil {
		return err
	}
	p := a.o.Catalogue.Producer(param(rc, "producer"))
	if p == nil {
		return errNoProducer
	}
	view := a.producerFor(rc, p)
	stable, err := encode(view)
	if err != nil {
		return err
	}
	if k := a.o.Catalogue.Consumer(ident.Replies(p.No), ident.Sender); k != nil {
		within, cancel := context.WithTimeout(ctx, countTimeout)
		defer cancel()
		view.HeldUntil, view.HeldBy = a.held(within, k.No)
	}
	body, err := encode(view)
	if err != nil {
		return err
	}
	return answerTagged(rc, fasthttp.StatusOK, body, tagOf(stable), p.ChangedAt, true)
}

func (a *API) listProducers(ctx context.Context, rc *fasthttp.RequestCtx) error {
	q, err := readPage(rc, defaultPage, maxPage)
	if err != nil {
		return err
	}
	if err := a.fresh(ctx); err != nil {
		return err
	}
	entries := []entry{}
	for _, p := range a.o.Catalogue.Producers(q.First, q.Size+1) {
		entries = append(entries, entry{p.ID, producerPath(p.ID), p.ChangedAt})
	}
	return answerList(rc, q, "/producers", entries, noTime, !a.o.Catalogue.DeletedProducers())
}

// An entry is a member of a list.
type entry struct {
	id   string
	link string
	at   time.Time
}

// answerList answers a list with up to q.Size+1 entries. The entry after q.Size is the first
// of the next page. Last-Modified includes it, because its arrival changes Pages. empty is
// the Last-Modified of a page without entries.
func answerList(rc *fasthttp.RequestCtx, q pageQuery, path string, entries []entry, empty time.Time,
	byDate bool) error {
	view := apitype.List{Result: make([]string, 0, len(entries))}
	var at time.Time
	for i, e := range entries {
		at = newest(at, e.at)
		if i == q.Size {
			view.Pages = q.next(path, e.id)
			break
		}
		view.Result = append(view.Result, e.link)
	}
	if len(entries) == 0 {
		at = empty
	}
	return answerResource(rc, fasthttp.StatusOK, view, at, byDate)
}
