package api

import (
	"context"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/internal/model/apitype"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/model/jobs"
	"github.com/penstock-broker/penstock/internal/model/problem"
	"github.com/penstock-broker/penstock/internal/tool/intake"
	"github.com/penstock-broker/penstock/internal/tool/request"
)

const (
	// stepsWithin bounds the steps of one request that moves many jobs, stepsAnswer the time for its answer.
	stepsWithin = 25 * time.Second
	stepsAnswer = 30 * time.Second
)

// purgeQueries are the parameters of a purge.
var purgeQueries = []string{"forget"}

// purgeConsumer ends the jobs of a consumer that are queued now; those in flight stay. A purge that takes
// longer than a request may says so in its answer, and a repeated request goes on. What it has ended before
// an error, or before its client left, stays ended.
func (a *API) purgeConsumer(ctx context.Context, rc *fasthttp.RequestCtx) error {
	if err := noForm(rc); err != nil {
		return err
	}
	forget, err := readFlag(rc, "forget")
	if err != nil {
		return err
	}
	ch, k, err := a.consumer(ctx, rc)
	if err != nil {
		return err
	}
	if err := rc.Conn().SetWriteDeadline(time.Now().Add(stepsWithin + stepsAnswer)); err != nil {
		return nil // the connection is closed
	}
	through, err := a.upToNow(ctx, k.ChannelNo)
	if err != nil {
		return err
	}
	p := &jobs.Purge{Consumer: k, Through: through, Forget: forget}
	n, err := a.purge(rc, p)
	if n > 0 {
		a.log.Info("queued jobs of a consumer were purged", "channel", ch.ID, "consumer", k.ID, "jobs", n, "forget", forget,
			"request_id", requestID(rc))
	}
	if err != nil {
		return err
	}
	return answerJSON(rc, fasthttp.StatusOK, apitype.Purged{Purged: n, More: !p.Done()})
}

// upToNow returns an ID that is not before any message which the channel has now. The time alone is not enough: IDs are
// ahead of the store's clock by what its last answer to their broker took.
func (a *API) upToNow(ctx context.Context, channelNo uint32) (ident.ID, error) {
	latest, err := a.o.Store.LatestMessages(ctx, channelNo-1, 1)
	now := ident.Before(a.o.NowMs() + 1)
	if err != nil || len(latest) == 0 || latest[0].ChannelNo != channelNo || latest[0].ID.Compare(now) < 0 {
		return now, err
	}
	return latest[0].ID, nil
}

// purge makes steps as long as the request may take, its client is there and the broker does not stop.
func (a *API) purge(rc *fasthttp.RequestCtx, p *jobs.Purge) (total int, err error) {
	ctx, cancel := context.WithTimeout(request.Of(rc), stepsWithin+requestTimeout)
	defer cancel()
	for end := time.Now().Add(stepsWithin); !p.Done() && time.Now().Before(end); {
		select {
		case <-a.o.Stopping:
			return total, problem.ErrDraining
		default:
		}
		n, err := a.o.Jobs.Purge(ctx, p)
		total += n
		if err != nil {
			return total, err
		}
		if intake.Gone(rc.Conn()) {
			return total, nil // nobody reads the answer
		}
	}
	return total, nil
}

// readFlag reads a parameter that is true or false, which it is without a value to it.
func readFlag(rc *fasthttp.RequestCtx, name string) (bool, error) {
	all := rc.QueryArgs().PeekMulti(name)
	switch {
	case len(all) == 0:
		return false, nil
	case len(all) > 1:
		return false, problem.Newf(fasthttp.StatusBadRequest, "invalid_query", "The parameter %s occurs more than once.",
			name)
	}
	switch string(all[0]) {
	case "true", "1":
		return true, nil
	case "false", "0":
		return false, nil
	}
	return false, problem.Newf(fasthttp.StatusBadRequest, "invalid_query", "The parameter %s must be true or false.", name)
}
