package stores

import (
	"context"
	"errors"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/problem"
)

// ErrFixed is the answer to a PUT that names another store for a channel that exists.
var ErrFixed = problem.New(fasthttp.StatusBadRequest, "store_fixed",
	"The store of a channel is fixed when it is created. Nothing was changed.")

// errCreating is the answer to a PUT while another one creates the channel in another store.
var errCreating = later("Another request is creating the channel in another store. Nothing was changed; send the " +
	"request again.")

// creating is how long a channel may take to be created where its place says. What is older is left over from a
// broker that died, or from a channel that is deleted.
const creating = time.Minute

// A Placed is where a channel is put.
type Placed struct {
	API API // nil: the first store
	r   *Router
	// held is what this request said: it is taken back where the request is refused. nil: it said nothing.
	held *durable.Place
}

// Place returns where a channel is put, and says so for one that is not there yet. store is the field of the request;
// nil: it has none.
func (r *Router) Place(ctx context.Context, channelID string, store *string) (Placed, error) {
	first := Placed{r: r}
	if r.o.Catalogue.Channel(channelID) != nil {
		if store != nil && *store != "" {
			return first, ErrFixed
		}
		return first, nil
	}
	want := ""
	if store != nil {
		want = *store
	}
	if want != "" && r.member(want) == nil {
		return first, r.unknown(want)
	}
	held, made, err := r.o.Store.PlaceChannel(ctx, durable.Place{ChannelID: channelID, Store: want, AtMs: r.o.NowMs()})
	if err != nil {
		return first, err
	}
	if held.Store != want {
		if held, made, err = r.elsewhere(ctx, held, store); err != nil {
			return first, err
		}
	}
	placed, err := r.at(held.Store)
	if made {
		placed.held = &held
	}
	if err != nil {
		placed.Done(ctx, err)
	}
	return placed, err
}

// at is a place.
func (r *Router) at(store string) (Placed, error) {
	placed := Placed{r: r}
	if store == "" {
		return placed, nil
	}
	m := r.member(store)
	if m == nil {
		return placed, r.unknown(store)
	}
	p := m.part.Load()
	if p == nil {
		return placed, later("The store " + store + " cannot be reached right now. Nothing was changed; send the request " +
			"again.")
	}
	placed.API = p.API
	return placed, nil
}

// elsewhere decides where a channel is put for which another place was said than the request wants.
func (r *Router) elsewhere(ctx context.Context, held durable.Place, store *string) (now durable.Place, made bool,
	err error) {
	there, err := r.exists(ctx, held)
	switch {
	case err != nil:
		return held, false, err
	case there && store != nil:
		return held, false, ErrFixed
	case there:
		return held, false, nil
	case r.o.NowMs()-held.AtMs < creating.Milliseconds():
		return held, false, errCreating
	}
	now = durable.Place{ChannelID: held.ChannelID, AtMs: r.o.NowMs()}
	if store != nil {
		now.Store = *store
	}
	moved, err := r.o.Store.MovePlace(ctx, held, now.Store, now.AtMs)
	if err == nil && !moved {
		err = errCreating
	}
	return now, true, err
}

// exists reports whether a channel is where its place says.
func (r *Router) exists(ctx context.Context, held durable.Place) (bool, error) {
	of := r.o.Catalogue
	if held.Store != "" {
		m := r.member(held.Store)
		if m == nil || m.part.Load() == nil {
			return false, errAway(held.Store)
		}
		of = m.part.Load().Catalogue
	}
	if err := of.Refresh(ctx); err != nil {
		return false, err
	}
	return of.Channel(held.ChannelID) != nil, nil
}

// Done says how the PUT ended. A place of a channel that was refused is taken back.
func (p Placed) Done(ctx context.Context, err error) {
	var refused *problem.Problem
	if p.held == nil || !errors.As(err, &refused) || refused.Status >= 500 && refused.Code != "unavailable" {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookWithin)
	defer cancel()
	if err := p.r.o.Store.ForgetPlace(ctx, *p.held); err != nil {
		p.r.o.Log.Warn("the place of a channel that was refused could not be taken back; a PUT does so after a minute",
			"channel", p.held.ChannelID, "error", err)
	}
}
