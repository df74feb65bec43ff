package api

import (
	"context"
	"errors"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/apitoken"
	"github.com/penstock-broker/penstock/internal/model/apitype"
	"github.com/penstock-broker/penstock/internal/model/problem"
	"github.com/penstock-broker/penstock/internal/model/scope"
	"github.com/penstock-broker/penstock/internal/tool/quantity"
)

// How long an API token lasts that has an end.
const leastToken, mostToken = time.Minute, 3650 * 24 * time.Hour

const tokenExample = `{"Name":"ci","Scopes":["channel:orders"],"Expires":"24h"}`

var (
	errTokenName = problem.New(fasthttp.StatusBadRequest, "invalid_token_name",
		"The member Name must be 1 to 255 characters that can be shown.")
	errTokenExpires = problem.New(fasthttp.StatusBadRequest, "invalid_expires",
		"The member Expires must be a duration from 1m to 3650d, like 24h. Without it the token has no end.")
	errTooManyTokens = problem.Newf(fasthttp.StatusConflict, "too_many_tokens",
		"There are %d API tokens, as many as there may be: end one with DELETE /tokens/{token}.", durable.MaxAPITokens)
	errNoToken = problem.New(fasthttp.StatusNotFound, "token_not_found", "There is no API token of this ID.")
)

// tokenOf reads what a request wants of a new token.
func tokenOf(body []byte) (t durable.APIToken, lasts time.Duration, err error) {
	var want apitype.TokenRequest
	if err := readObject(body, &want, tokenExample); err != nil {
		return t, 0, err
	}
	if want.Name == "" || !utf8.ValidString(want.Name) || utf8.RuneCountInString(want.Name) > maxNameBytes ||
		strings.ContainsFunc(want.Name, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return t, 0, errTokenName
	}
	scopes, err := scope.ParseSet(want.Scopes)
	if err != nil {
		return t, 0, problem.Newf(fasthttp.StatusBadRequest, "invalid_scope", "The member Scopes is wrong: %s.", err)
	}
	if want.Expires != "" {
		lasts, err = quantity.Duration(want.Expires)
		if err != nil || lasts < leastToken || lasts > mostToken {
			return t, 0, errTokenExpires
		}
	}
	return durable.APIToken{Name: want.Name, Scopes: scopes.String()}, lasts, nil
}

// makeToken makes an API token. The token is in this answer and in no other, and is not stored.
func (a *API) makeToken(ctx context.Context, rc *fasthttp.RequestCtx) error {
	t, lasts, err := tokenOf(rc.PostBody())
	if err != nil {
		return err
	}
	token, id := apitoken.New()
	digest := a.o.TokenKeys.Digest([]byte(token))
	t.ID, t.Digest, t.KeyID = id, string(digest.Sum[:]), digest.KeyID
	t, err = a.o.Store.CreateAPIToken(ctx, t, lasts)
	if errors.Is(err, durable.ErrTooManyTokens) {
		return errTooManyTokens
	}
	if err != nil {
		return err
	}
	a.changed(ctx, rc)
	a.log.Info("an API token was made", "token", t.ID, "scopes", t.Scopes, "request_id", requestID(rc))
	setLocation(rc, "/tokens/"+t.ID)
	rc.Response.Header.Set(fasthttp.HeaderCacheControl, "no-store")
	return answerJSON(rc, fasthttp.StatusCreated, apitype.NewToken{ListedToken: a.viewToken(&t), Token: token})
}

func (a *API) viewToken(t *durable.APIToken) apitype.ListedToken {
	v := apitype.ListedToken{ID: t.ID, Name: t.Name, Scopes: strings.Fields(t.Scopes),
		CreatedAt: apitype.Time{Time: time.UnixMilli(t.CreatedMs)}}
	if t.ExpiresMs > 0 {
		v.ExpiresAt = &apitype.Time{Time: time.UnixMilli(t.ExpiresMs)}
		v.Expired = a.o.NowMs() >= t.ExpiresMs
	}
	used := t.UsedMs
	if g := a.o.Catalogue.GrantByID(t.ID); g != nil {
		used = max(used, g.UsedMs())
	}
	if used > 0 {
		v.LastUsedAt = &apitype.Time{Time: time.UnixMilli(used)}
	}
	if !a.o.TokenKeys.Knows(t.KeyID) {
		v.Refused = "It was made with another BROKER_TOKEN_KEY."
	}
	return v
}

// listTokens lists the API tokens, without what they are.
func (a *API) listTokens(ctx context.Context, rc *fasthttp.RequestCtx) error {
	q, err := readPage(rc, defaultPage, maxPage)
	if err != nil {
		return err
	}
	all, err := a.o.Store.APITokens(ctx, q.First, q.Size+1)
	if err != nil {
		return err
	}
	view := apitype.TokenList{Result: []apitype.ListedToken{}}
	for i := range all {
		if i == q.Size {
			view.Pages = q.next("/tokens", all[i].ID)
			break
		}
		view.Result = append(view.Result, a.viewToken(&all[i]))
	}
	return answerResource(rc, fasthttp.StatusOK, view, time.UnixMilli(a.o.NowMs()), false)
}

// endToken ends an API token: at this broker at once, and at the others before the answer, where they can be told.
func (a *API) endToken(ctx context.Context, rc *fasthttp.RequestCtx) error {
	id := param(rc, "token")
	err := a.o.Store.DeleteAPIToken(ctx, id)
	if errors.Is(err, durable.ErrNotFound) {
		return errNoToken
	}
	if err != nil {
		return err
	}
	a.log.Info("an API token was ended", "token", id, "request_id", requestID(rc))
	a.changed(ctx, rc)
	if a.o.AwaitOthers != nil {
		a.o.AwaitOthers(ctx)
	}
	rc.SetStatusCode(fasthttp.StatusNoContent)
	return nil
}
