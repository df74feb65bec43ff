package api

import (
	"context"
	"math"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/apitype"
	"github.com/penstock-broker/penstock/internal/model/ident"
)

// replaysShown bounds the replays that one GET of a job shows.
const replaysShown = 10

// replaysOf returns what the newest replays of the consumer did with a job.
func (a *API) replaysOf(ctx context.Context, k *durable.Consumer, id ident.ID) (out []apitype.ReplayedJob, err error) {
	replays, err := a.o.Store.Replays(ctx, *k, math.MaxUint32, maxPage)
	if err != nil {
		return nil, err
	}
	for i := range replays {
		r := &replays[i]
		if id.Compare(r.After) <= 0 || id.Compare(r.Through) > 0 {
			continue
		}
		g := k.Generation(r)
		states, err := a.o.Jobs.StatesOf(ctx, g, []ident.ID{id})
		if err != nil {
			return nil, err
		}
		j := located{consumer: g, state: states[0]}
		if !j.known() {
			continue
		}
		var counts apitype.Job
		past, err := a.history(ctx, j, &counts)
		if err != nil {
			return nil, err
		}
		out = append(out, apitype.ReplayedJob{Replay: r.ID(), Status: j.state.Status,
			StatusAt: apitype.Time{Time: j.state.ChangedAt},
			Attempts: j.state.Attempts, LeasesLost: *counts.LeasesLost, GivenBack: *counts.GivenBack,
			AttemptHistory: past.AttemptHistory})
		if len(out) == replaysShown {
			break
		}
	}
	return out, nil
}
