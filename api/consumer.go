package api

import (
	"cmp"
	"context"
	"errors"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/apitype"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/model/policy"
	"github.com/penstock-broker/penstock/internal/model/problem"
	"github.com/penstock-broker/penstock/internal/tool/egress"
	"github.com/penstock-broker/penstock/internal/tool/failpoint"
	"github.com/penstock-broker/penstock/internal/tool/quantity"
)

// maxCallbackBytes is the longest callback URL. Proxies and servers commonly accept a request
// target of that length.
const maxCallbackBytes = 2048

// viewConsumer returns the view of a consumer. Its secrets are masked, except the named fields of
// its policy.
func (a *API) viewConsumer(channelID string, k *durable.Consumer, reveal ...string) apitype.Consumer {
	view := apitype.Consumer{
		ID: k.ID, Name: k.Name, Token: k.Token, ChangedAt: changedAt(k.ChangedAt), CallbackURL: k.CallbackURL,
		DeadLetterQueueURL: consumerPath(channelID, k.ID) + "/dlq", Type: k.Type.String(), Protocol: k.Protocol,
		Inherited: []string{},
		State:     k.State.String(), StateReason: k.StateReason, StateChangedAt: apitype.Time{Time: time.UnixMilli(
			k.StateMs)}, Rate: "NORMAL",
	}
	if !k.Since.IsZero() {
		view.Since = &apitype.Time{Time: time.UnixMilli(k.Since.Millis() + 1)}
	}
	// A test holds the members of apitype.Policy equal to the names of package policy.
	members := reflect.ValueOf(&view.Policy).Elem()
	for _, s := range a.o.Policies.Show(k.Policy, k.Type == durable.Pull, reveal...) {
		members.FieldByName(s.Name).SetString(s.Value)
		if s.Inherited {
			view.Inherited = append(view.Inherited, s.Name)
		}
	}
	return view
}

// consumerFor returns a consumer as a request may see it.
func (a *API) consumerFor(rc *fasthttp.RequestCtx, channelID string, k *durable.Consumer,
	reveal ...string) apitype.Consumer {
	view := a.viewConsumer(channelID, k, reveal...)
	a.veil(rc, &view.Token)
	return view
}

func consumerPath(channelID, id string) string { return channelPath(channelID) + "/consumer/" + id }

func (a *API) putConsumer(ctx context.Context, rc *fasthttp.RequestCtx) error {
	if err := free(rc, "consumer"); err != nil {
		return err
	}
	base, f, err := readPut(rc, param(rc, "consumer"), &consumerBody)
	if err != nil {
		return err
	}
	put := durable.ConsumerPut{Put: base, ChannelID: param(rc, "channel")}
	if err = a.settleConsumer(ctx, &f, put.ChannelID, put.ID); err != nil {
		return err
	}
	since, err := a.readConsumer(ctx, f.form, &put)
	if err = cmp.Or(err, mayBring(rc, put.Token), a.mayForward(rc, f.form["dlq"])); err != nil {
		return err
	}
	err = a.preconditions(ctx, rc, &put.Put, func() (*revision, error) {
		if a.o.Catalogue.Channel(put.ChannelID) == nil {
			return nil, catalogue.ErrUnknownChannel
		}
		k := a.o.Catalogue.Consumer(put.ChannelID, put.ID)
		if k == nil {
			return nil, nil
		}
		return &revision{a.consumerFor(rc, put.ChannelID, k), k.ChangedAt}, nil
	})
	if err != nil {
		return err
	}
	change := watchRecord(&put.Policy)
	k, created, err := a.o.Store.PutConsumer(ctx, put)
	switch {
	case errors.Is(err, durable.ErrNotFound):
		return catalogue.ErrUnknownChannel
	case errors.Is(err, durable.ErrConsumerInvalid):
		return problem.New(fasthttp.StatusBadRequest, "callback_required", "A push consumer needs a callbackUrl.")
	case errors.Is(err, durable.ErrSince):
		return problem.New(fasthttp.StatusConflict, "since_fixed", "The consumer exists, and the time since which it gets "+
			"messages does not change. A replay gives it older ones.")
	case err != nil:
		return err
	}
	failpoint.At(failpoint.AfterConfig)
	a.changed(ctx, rc)
	a.markConsumer(ctx, rc, created, change, put.ChannelID, &k)
	if created {
		setLocation(rc, consumerPath(put.ChannelID, k.ID))
	}
	only := once{token: created || put.Token != nil}
	if f.form["signingSecret"] != "" {
		only.secrets = []string{"signingSecret"}
	}
	if created && put.Since != nil {
		only.removedBefore = a.missing(ctx, put.ChannelID, since)
		a.log.Info("a consumer gets messages of the past", "channel", put.ChannelID, "consumer", k.ID, "since",
			time.UnixMilli(since).UTC(), "request_id", requestID(rc))
	}
	return a.answerConsumer(ctx, rc, putStatus(created), put.ChannelID, &k, only)
}

// readConsumer reads the fields of a consumer alone. It returns the time in the field "since", as
// since does.
func (a *API) readConsumer(ctx context.Context, f form, put *durable.ConsumerPut) (since int64, err error) {
	if put.Type, err = f.consumerType(); err != nil {
		return 0, err
	}
	if put.Protocol, err = f.protocol(); err != nil {
		return 0, err
	}
	if put.CallbackURL, err = a.callback(f); err != nil {
		return 0, err
	}
	if err = a.applicable(ctx, put, f); err != nil {
		return 0, err
	}
	if put.Policy, err = a.policy(ctx, put.ChannelID, f); err != nil {
		return 0, err
	}
	if err = a.fits(ctx, put); err != nil {
		return 0, err
	}
	if err = a.checkTimeout(ctx, put, f); err != nil {
		return 0, err
	}
	return a.since(f, put)
}

// foreign are the fields that mean nothing to consumers of a kind.
func foreign(kind policy.Kind) []string {
	names := policy.Without(kind)
	if kind != policy.ByHTTP {
		names = append([]string{"protocol"}, names...)
	}
	return names
}

// kinds are the kinds of consumers in words.
var kinds = map[policy.Kind]string{
	policy.ByPull: "a pull consumer, which the broker does not call",
	policy.ByHTTP: "a consumer with an http or https callbackUrl",
	policy.ByMail: "a consumer with a mailto: callbackUrl",
	policy.ByNATS: "a consumer with a nats: or tls: callbackUrl",
}

// applicable refuses a field that means nothing to a consumer of the type and callback that the PUT leaves
// it with, unless the field is empty or says what holds anyway, as GET shows it.
func (a *API) applicable(ctx context.Context, put *durable.ConsumerPut, f form) error {
	if !slices.ContainsFunc(foreign(0), func(name string) bool { return f[name] != "" }) {
		return nil
	}
	left, err := a.left(ctx, put, put.Type == nil || put.CallbackURL == nil || *put.Type == durable.Pull)
	if err != nil {
		return err
	}
	record, protocol := left.Policy, left.Protocol
	kind := a.kindOf(&left)
	for _, name := range foreign(kind) {
		if f[name] == "" || name == "protocol" && protocol == f[name] || a.o.Policies.Same(record, name, f[name]) {
			continue
		}
		return problem.Newf(fasthttp.StatusBadRequest, "unknown_field", "The field %s means nothing to %s. Neither do %s.",
			name, kinds[kind], strings.Join(foreign(kind), ", "))
	}
	return nil
}

// left returns the consumer with the type and callback that a PUT leaves it with, and with all else as it is,
// where known asks for that.
func (a *API) left(ctx context.Context, put *durable.ConsumerPut, known bool) (left durable.Consumer, err error) {
	if known {
		if err := a.fresh(ctx); err != nil {
			return left, err
		}
		if k := a.o.Catalogue.Consumer(put.ChannelID, put.ID); k != nil {
			left = *k
		}
	}
	if put.Type != nil {
		left.Type = *put.Type
	}
	if put.CallbackURL != nil {
		left.CallbackURL = *put.CallbackURL
	}
	return left, nil
}

// fits refuses a policy with which the sender of the callback cannot send, what the consumer keeps of it
// included. That of http can with each.
func (a *API) fits(ctx context.Context, put *durable.ConsumerPut) error {
	if a.o.Senders == nil || put.CallbackURL == nil && put.Policy == nil ||
		put.CallbackURL != nil && a.o.Senders.Kind(*put.CallbackURL) == policy.ByHTTP {
		return nil
	}
	left, err := a.left(ctx, put, true)
	if err != nil || a.kindOf(&left)&(policy.ByHTTP|policy.ByPull) != 0 {
		return err
	}
	record := left.Policy
	if put.Policy != nil {
		if record, err = put.Policy(record); err != nil {
			return badField(err)
		}
	}
	if err := a.o.Senders.Fits(left.CallbackURL, a.o.Policies.Of(record)); err != nil {
		return badField(err)
	}
	return nil
}

// kindOf returns how a consumer gets its jobs.
func (a *API) kindOf(k *durable.Consumer) policy.Kind {
	switch {
	case k.Type == durable.Pull:
		return policy.ByPull
	case a.o.Senders == nil || k.CallbackURL == "":
		return policy.ByHTTP
	}
	return cmp.Or(a.o.Senders.Kind(k.CallbackURL), policy.ByHTTP)
}

// mostExchange is the longest timeout of a push consumer. A lease of a pull consumer may be longer.
const mostExchange = time.Hour

// checkTimeout refuses a timeout that a push consumer cannot have.
func (a *API) checkTimeout(ctx context.Context, put *durable.ConsumerPut, f form) error {
	d, err := quantity.Duration(f["timeout"])
	if err != nil || d <= mostExchange {
		return nil
	}
	kind := durable.Push
	if put.Type != nil {
		kind = *put.Type
	} else {
		if err := a.fresh(ctx); err != nil {
			return err
		}
		if k := a.o.Catalogue.Consumer(put.ChannelID, put.ID); k != nil {
			kind = k.Type
		}
	}
	if kind == durable.Push {
		return problem.New(fasthttp.StatusBadRequest, "invalid_policy",
			"The field timeout must be a duration from 100ms to 1h for a push consumer.")
	}
	return nil
}

// since reads the field "since", whose policy is read already. It returns the time in Unix ms; 0: the
// field is absent or empty.
func (a *API) since(f form, put *durable.ConsumerPut) (int64, error) {
	if f["since"] == "" {
		return 0, nil
	}
	invalid := func(detail string) error { return problem.New(fasthttp.StatusBadRequest, "invalid_since", detail) }
	t, err := apitype.ParseTime(f["since"])
	now, ms := a.o.NowMs(), max(t.UnixMilli(), 1)
	switch {
	case err != nil || t.UnixMilli() < 0:
		return 0, invalid("The field since must be an RFC 3339 time, such as 2026-01-31T15:04:05Z.")
	case ms > now:
		return 0, invalid("The field since must not be a time to come.")
	}
	record := ""
	if put.Policy != nil {
		if record, err = put.Policy(""); err != nil {
			return 0, badField(err)
		}
	}
	ttl := a.o.Policies.Of(record).TTL.Milliseconds()
	if ttl > 0 && ms < now-ttl && a.o.Catalogue.Consumer(put.ChannelID, put.ID) == nil {
		return 0, invalid("The field since is further back than the ttl: the first messages would be dead letters at once.")
	}
	id := ident.Before(ms)
	put.Since = &id
	return ms, nil
}

// consumerType returns the field "type": nil, which keeps the stored type, when
// it is absent; push when it is empty.
func (f form) consumerType() (*durable.ConsumerType, error) {
	text := f.field("type")
	if text == nil {
		return nil, nil
	}
	t := durable.Push
	switch *text {
	case "", "push":
	case "pull":
		t = durable.Pull
	default:
		return nil, problem.New(fasthttp.StatusBadRequest, "invalid_type", "The type must be push or pull.")
	}
	return &t, nil
}

// protocol returns the field "protocol": nil, which keeps the stored one, when it is absent.
// An empty field sets HTTP/1.1.
func (f form) protocol() (*string, error) {
	protocol := f.field("protocol")
	if protocol != nil && *protocol != "" && *protocol != "h2" && *protocol != "auto" {
		return nil, problem.New(fasthttp.StatusBadRequest, "invalid_protocol", "The protocol must be h2, auto or empty.")
	}
	return protocol, nil
}

// policy returns the change that the policy fields make to the stored record; nil, which
// keeps the record, when the form has none.
func (a *API) policy(ctx context.Context, channelID string, f form) (func(record string) (string, error), error) {
	fields := map[string]string{}
	for _, name := range policy.Names() {
		if value, ok := f[name]; ok {
			fields[name] = value
		}
	}
	if len(fields) == 0 {
		return nil, nil
	}
	merge := func(record string) (string, error) { return a.o.Policies.Merge(record, fields, time.Now()) }
	record, err := merge("")
	if err != nil {
		return nil, badField(err)
	}
	for _, field := range []string{"statusUrl", "resultUrl", "authorization"} {
		if err := a.checkURLOf(field, fields[field]); err != nil {
			return nil, err
		}
	}
	if fields["dlq"] == "" {
		return merge, nil
	}
	return merge, a.checkForward(ctx, channelID, a.o.Policies.Of(record).DLQ)
}

// checkForward refuses to forward dead letters where they cannot go, or back to where they
// come from.
func (a *API) checkForward(ctx context.Context, channelID string, dlq policy.DLQ) error {
	refused := func(why string) error {
		return problem.Newf(fasthttp.StatusBadRequest, "invalid_policy", "The field dlq %s.", why)
	}
	switch {
	case dlq.Kind != policy.DLQForward:
		return nil
	case dlq.Channel == channelID:
		return refused("must not forward to the consumer's own channel")
	case a.o.Catalogue.Channel(dlq.Channel) != nil:
		return nil
	}
	if err := a.o.Catalogue.Refresh(ctx); err != nil { // another broker may have made it
		return err
	}
	if a.o.Catalogue.Channel(dlq.Channel) == nil {
		return refused("names a channel that does not exist")
	}
	return nil
}

// checkURLOf checks that the broker may ask the URL in a field of the policy.
func (a *API) checkURLOf(field, text string) error {
	var p policy.Policy
	if text == "" || a.o.CheckCallback == nil || policy.Set(&p, field, text) != nil {
		return nil
	}
	url := (p.StatusURL + p.ResultURL).For("m") // one of them
	if client, ok := p.Authorization.OAuth2(); ok {
		url = client.TokenURL
	}
	if url == "" {
		return nil
	}
	if err := a.o.CheckCallback(url); err != nil {
		return problem.Newf(fasthttp.StatusBadRequest, "invalid_policy",
			"The field %s has a URL that the broker may not ask: %s.", field, egress.Say(err))
	}
	return nil
}

// callback returns the field "callbackUrl": nil, which keeps the stored one, when it is
// absent. An empty field removes the URL, which only a pull consumer may do.
func (a *API) callback(f form) (*string, error) {
	raw := f.field("callbackUrl")
	if raw == nil || *raw == "" {
		return raw, nil
	}
	if err := checkText(*raw); err != nil {
		return nil, err
	}
	check := a.o.CheckCallback
	if a.o.Senders != nil {
		check = a.o.Senders.Check
	}
	if a.o.Senders == nil || a.o.Senders.Kind(*raw) == policy.ByHTTP || !strings.Contains(*raw, ":") {
		if err := checkCallback(*raw); err != nil {
			return nil, err
		}
	}
	if check != nil {
		err := check(*raw)
		var refused *problem.Problem
		switch {
		case errors.As(err, &refused):
			return nil, refused
		case err != nil:
			return nil, problem.Newf(fasthttp.StatusBadRequest, "callback_refused",
				"The broker may not post to this callbackUrl: %s.", egress.Say(err))
		}
	}
	return raw, nil
}

func invalidCallback(detail string) error {
	return problem.New(fasthttp.StatusBadRequest, "invalid_callback", detail)
}

// checkText checks what a callback URL of any scheme must be.
func checkText(raw string) error {
	if len(raw) > maxCallbackBytes {
		return invalidCallback("The callbackUrl may have at most 2048 bytes.")
	}
	if !visibleASCII(raw) {
		return invalidCallback("The callbackUrl must be percent-encoded ASCII without blanks.")
	}
	return nil
}

// checkCallback checks the syntax of an http or https URL only. Its errors do not quote the URL,
// which may contain a secret.
func checkCallback(raw string) error {
	if err := checkText(raw); err != nil {
		return err
	}
	u, err := url.Parse(raw)
	switch {
	case err != nil:
		return invalidCallback("The callbackUrl is not a URL.")
	case u.Scheme != "http" && u.Scheme != "https", u.Opaque != "", u.Hostname() == "":
		return invalidCallback("The callbackUrl must be an absolute http or https URL.")
	case u.User != nil:
		return invalidCallback("The callbackUrl may not hold a user name or password.")
	case u.Fragment != "":
		return invalidCallback("The callbackUrl may not hold a fragment.")
	}
	return nil
}

func (a *API) getConsumer(ctx context.Context, rc *fasthttp.RequestCtx) error {
	ch, k, err := a.consumer(ctx, rc)
	if err != nil {
		return err
	}
	return a.answerConsumer(ctx, rc, fasthttp.StatusOK, ch.ID, k, once{})
}

func (a *API) listConsumers(ctx context.Context, rc *fasthttp.RequestCtx) error {
	q, err := readPage(rc, defaultPage, maxPage)
	if err != nil {
		return err
	}
	ch, err := a.channel(ctx, rc)
	if err != nil {
		return err
	}
	entries := []entry{}
	for _, k := range a.o.Catalogue.Consumers(ch.ID, q.First, q.Size+1) {
		entries = append(entries, entry{k.ID, consumerPath(ch.ID, k.ID), k.ChangedAt})
	}
	return answerList(rc, q, channelPath(ch.ID)+"/consumers", entries, ch.ChangedAt, !ch.Deletions())
}
