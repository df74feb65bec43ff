package api

import (
	"bytes"
	"context"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/internal/feature/ui"
	"github.com/penstock-broker/penstock/internal/model/apitype"
	"github.com/penstock-broker/penstock/internal/model/problem"
	"github.com/penstock-broker/penstock/internal/tool/quantity"
)

// How long a portal link opens the pages of its consumer.
const (
	leastPortal, mostPortal, usualPortal = time.Hour, 24 * time.Hour, 4 * time.Hour
	portalExample                        = `{"TTL":"4h"}`
)

var (
	errPortalTTL = problem.New(fasthttp.StatusBadRequest, "invalid_ttl",
		"TTL must be a duration from 1h to 24h, like 4h.")
	errNoDashboard = problem.New(fasthttp.StatusNotFound, "no_such_path",
		"This broker has no dashboard: BROKER_UI is off.")
)

// portalLink makes a link to the pages of a consumer, for its owner.
func (a *API) portalLink(ctx context.Context, rc *fasthttp.RequestCtx) error {
	switch {
	case a.o.UI == nil:
		return errNoDashboard
	case a.o.AdminToken == "":
		return errNoAdmin // a link is signed with it, and ends with it
	}
	var want apitype.PortalRequest
	if body := rc.PostBody(); len(bytes.TrimSpace(body)) > 0 {
		if err := readObject(body, &want, portalExample); err != nil {
			return err
		}
	}
	ttl := usualPortal
	if want.TTL != "" {
		var err error
		if ttl, err = quantity.Duration(want.TTL); err != nil || ttl < leastPortal || ttl > mostPortal {
			return errPortalTTL
		}
	}
	ch, k, err := a.consumer(ctx, rc)
	if err != nil {
		return err
	}
	if err := a.audit(rc); err != nil {
		return err
	}
	until := time.Now().Add(ttl).UTC().Truncate(time.Second)
	of := ui.PortalOf{Channel: ch.ID, Consumer: k.ID, No: k.No, Token: k.Token}
	if g := scoped(rc); g != nil {
		of.GrantID, of.GrantVersion = g.ID, g.Version()
		if end, ok := g.Until(); ok && end.Before(until) {
			until = end.UTC().Truncate(time.Second)
		}
	}
	base := a.o.PublicURL
	if base == "" {
		base = string(rc.URI().Scheme()) + "://" + string(rc.Host())
	}
	a.log.Info("a portal link was made", "channel", ch.ID, "consumer", k.ID, "until", until, "request_id", requestID(rc))
	of.Until = until
	return answerJSON(rc, fasthttp.StatusOK, apitype.PortalLink{URL: base + a.o.UI.PortalLink(of),
		ExpiresAt: apitype.Time{Time: until}})
}

// TokenOf returns the token of the consumer with an ID and a number, as this broker knows.
func (p pages) TokenOf(channel, consumer string, no uint32) (token string, ok bool) {
	k := p.o.Catalogue.Consumer(channel, consumer)
	if k == nil || k.No != no {
		return "", false
	}
	return k.Token, true
}
