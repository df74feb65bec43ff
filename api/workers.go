package api

import (
	"context"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/internal/model/apitype"
)

// getWorkers answers with the workers of a consumer that are alive.
func (a *API) getWorkers(ctx context.Context, rc *fasthttp.RequestCtx) error {
	_, k, err := a.consumer(ctx, rc)
	if err != nil {
		return err
	}
	if a.o.Presence == nil {
		return answerResource(rc, fasthttp.StatusOK, apitype.Workers{Result: []apitype.Worker{}}, k.ChangedAt, false)
	}
	known, err := a.o.Presence.Of(ctx, k.No)
	if err != nil {
		return err
	}
	of := []uint32{k.No}
	if g := a.o.Catalogue.ReplayOf(k.No); g != nil {
		of = append(of, g.No)
	}
	inFlight, err := a.o.Presence.InFlight(ctx, of...)
	if err != nil {
		return err
	}
	at := k.ChangedAt
	view := apitype.Workers{Result: make([]apitype.Worker, 0, len(known.Workers))}
	for _, w := range known.Workers {
		seen := time.UnixMilli(w.AtMs).UTC()
		at = newest(at, seen)
		v := apitype.Worker{Name: w.Name, Version: w.Version, Slots: w.Slots, InFlight: inFlight[w.Name],
			LastSeenAt: apitype.Time{Time: seen}, Address: w.Address, Tasks: w.Tasks}
		if v.Tasks == nil {
			v.Tasks = []string{}
		}
		view.Result = append(view.Result, v)
	}
	return answerResource(rc, fasthttp.StatusOK, view, at, false)
}
