package api

import (
	"context"
	"errors"

	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/apitype"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/model/policy"
	"github.com/penstock-broker/penstock/internal/model/problem"
)

var (
	errNoGroup   = problem.New(fasthttp.StatusNotFound, "group_not_found", "There is no such group.")
	errGroupFull = problem.New(fasthttp.StatusConflict, "group_full",
		"The group has as many channels as its maxChannels allows. Nothing was changed.")
	errHasChannels = problem.New(fasthttp.StatusConflict, "group_has_channels",
		"Channels carry the group: move them to another one, or take them out, first.")
)

// viewGroup returns the view of a group without the number of its channels, which no entity tag has.
func viewGroup(g *durable.Group) apitype.Group {
	path, limits := groupPath(g.ID), policy.GroupOf(g.Settings)
	return apitype.Group{ID: g.ID, Name: g.Name, ChangedAt: changedAt(g.ChangedAt), State: pausedState(g.Paused),
		MaxChannels: g.MaxChannels, PublishRate: limits.PublishRate.String(),
		ChannelsURL: "/channels?group=" + path[len("/group/"):]}
}

// pausedState is the state of what accepts messages or does not.
func pausedState(paused bool) string {
	if paused {
		return durable.StatePaused.String()
	}
	return durable.StateActive.String()
}

func groupPath(id string) string { return "/group/" + id }

func (a *API) putGroup(ctx context.Context, rc *fasthttp.RequestCtx) error {
	if err := free(rc, "group"); err != nil {
		return err
	}
	put, f, err := readPut(rc, param(rc, "group"), &groupBody)
	if err != nil {
		return err
	}
	if err = a.settleGroup(ctx, &f, put.ID); err != nil {
		return err
	}
	if put.Limits, err = f.limits(); err != nil {
		return err
	}
	err = a.preconditions(ctx, rc, &put, func() (*revision, error) {
		g := a.o.Catalogue.Group(put.ID)
		if g == nil {
			return nil, nil
		}
		return &revision{viewGroup(&g.Group), g.ChangedAt}, nil
	})
	if err != nil {
		return err
	}
	g, created, err := a.o.Store.PutGroup(ctx, put)
	if err != nil {
		return err
	}
	a.changed(ctx, rc)
	if created {
		setLocation(rc, groupPath(g.ID))
	}
	return a.answerGroup(rc, putStatus(created), &g, false)
}

// answerGroup writes a group with the number of its channels.
func (a *API) answerGroup(rc *fasthttp.RequestCtx, status int, g *durable.Group, byDate bool) error {
	view := viewGroup(g)
	stable, err := encode(view)
	if err != nil {
		return err
	}
	n := a.inGroup(g.ID)
	view.Channels = &n
	body, err := encode(view)
	if err != nil {
		return err
	}
	return answerTagged(rc, status, body, tagOf(stable), g.ChangedAt, byDate)
}

// limits returns the change that the fields of a group make to its record; nil, which keeps the
// record, when the form has none.
func (f document) limits() (func(record string) (string, int, error), error) {
	fields := f.of(policy.GroupNames())
	if len(fields) == 0 {
		return nil, nil
	}
	merge := func(record string) (string, int, error) {
		merged, err := policy.MergeGroup(record, fields)
		return merged, policy.GroupOf(merged).MaxChannels, err
	}
	_, _, err := merge("")
	return merge, badField(err)
}

// group returns the field "group" of a channel: nil, which keeps the group, when it is absent, and the
// empty text for none.
func (f form) group() *string { return f.field("group") }

func (a *API) getGroup(ctx context.Context, rc *fasthttp.RequestCtx) error {
	g, err := a.groupInPath(ctx, rc)
	if err != nil {
		return err
	}
	return a.answerGroup(rc, fasthttp.StatusOK, &g.Group, false)
}

// groupInPath returns the group that the path names, from a fresh catalogue.
func (a *API) groupInPath(ctx context.Context, rc *fasthttp.RequestCtx) (*catalogue.Group, error) {
	if err := a.fresh(ctx); err != nil {
		return nil, err
	}
	g := a.o.Catalogue.Group(param(rc, "group"))
	if g == nil {
		return nil, errNoGroup
	}
	return g, nil
}

func (a *API) listGroups(ctx context.Context, rc *fasthttp.RequestCtx) error {
	q, err := readPage(rc, defaultPage, maxPage)
	if err != nil {
		return err
	}
	if err := a.fresh(ctx); err != nil {
		return err
	}
	entries := []entry{}
	for _, g := range a.o.Catalogue.Groups(q.First, q.Size+1) {
		entries = append(entries, entry{g.ID, groupPath(g.ID), g.ChangedAt})
	}
	return answerList(rc, q, "/groups", entries, noTime, !a.o.Catalogue.DeletedGroups())
}

func (a *API) pauseGroup(ctx context.Context, rc *fasthttp.RequestCtx) error {
	return a.setGroupPaused(ctx, rc, true)
}

func (a *API) resumeGroup(ctx context.Context, rc *fasthttp.RequestCtx) error {
	return a.setGroupPaused(ctx, rc, false)
}

func (a *API) setGroupPaused(ctx context.Context, rc *fasthttp.RequestCtx, paused bool) error {
	if err := noForm(rc); err != nil {
		return err
	}
	g, err := a.o.States.PauseGroup(ctx, param(rc, "group"), paused)
	if errors.Is(err, durable.ErrNotFound) {
		return errNoGroup
	}
	if err != nil {
		return err
	}
	if a.leads() {
		a.changed(ctx, rc) // no other store takes a message of a paused group after the answer
	}
	return a.answerGroup(rc, fasthttp.StatusOK, &g, false)
}

func (a *API) deleteGroup(ctx context.Context, rc *fasthttp.RequestCtx) error {
	put := durable.Put{ID: param(rc, "group")}
	err := a.preconditions(ctx, rc, &put, func() (*revision, error) {
		g := a.o.Catalogue.Group(put.ID)
		if g == nil {
			return nil, errNoGroup
		}
		return &revision{viewGroup(&g.Group), g.ChangedAt}, nil
	})
	if err != nil {
		return err
	}
	if a.o.Stores != nil { // each store knows only its own channels
		if err := a.freshEverywhere(ctx); err != nil {
			return err
		}
		if a.inGroup(put.ID) > 0 {
			return errHasChannels
		}
	}
	_, err = a.o.Store.DeleteGroup(ctx, put)
	switch {
	case errors.Is(err, durable.ErrNotFound):
		return errNoGroup
	case errors.Is(err, durable.ErrHasChannels):
		return errHasChannels
	case err != nil:
		return err
	}
	a.deleted(ctx, rc, "group", "group", put.ID)
	return nil
}

// groupRefused turns the refusal of the group of a channel into a problem. It names the group that was
// probably meant.
func (a *API) groupRefused(ctx context.Context, named *string, err error) error {
	switch {
	case errors.Is(err, durable.ErrGroupFull):
		return errGroupFull
	case !errors.Is(err, durable.ErrNoGroup) || named == nil:
		return err
	}
	meant := "PUT /group/{group} makes one."
	if a.fresh(ctx) == nil {
		if best := problem.Nearest(*named, a.o.Catalogue.GroupIDs()); best != "" {
			meant = "Did you mean " + best + "?"
		}
	}
	return problem.Newf(fasthttp.StatusNotFound, "group_not_found",
		"The field group names no group that exists. %s Nothing was changed.", meant)
}
