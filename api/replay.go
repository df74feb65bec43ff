package api

import (
	"context"
	"errors"
	"math"
	"strconv"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/apitype"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/model/filter"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/model/jobs"
	"github.com/penstock-broker/penstock/internal/model/policy"
	"github.com/penstock-broker/penstock/internal/model/problem"
	"github.com/penstock-broker/penstock/internal/tool/failpoint"
	"github.com/penstock-broker/penstock/internal/tool/share"
)

// usualRate is the messages a second that an estimate assumes where no rate is set.
const usualRate = 500

// countWait is how long a request waits for its turn to count with a filter.
const countWait = 5 * time.Second

var (
	errUnknownReplay = problem.New(fasthttp.StatusNotFound, "replay_not_found", "The consumer has no such replay.")
	errReplayEnded   = problem.New(fasthttp.StatusConflict, "replay_ended",
		"The replay is done or cancelled, so its state does not change any more.")
	errReplayRunning = problem.New(fasthttp.StatusConflict, "replay_running",
		"The consumer has a replay already, which the Location names: wait until it is done, or cancel it.")
)

func invalidReplay(format string, args ...any) error {
	return problem.Newf(fasthttp.StatusBadRequest, "invalid_replay", format, args...)
}

func replaysPath(channelID, consumerID string) string {
	return consumerPath(channelID, consumerID) + "/replays"
}

func replayPath(channelID, consumerID, id string) string {
	return consumerPath(channelID, consumerID) + "/replay/" + id
}

// postReplay counts a replay, or begins it.
func (a *API) postReplay(ctx context.Context, rc *fasthttp.RequestCtx) error {
	ch, k, err := a.consumer(ctx, rc)
	if err != nil {
		return err
	}
	var req apitype.ReplayRequest
	if err := readObject(rc.Request.Body(), &req, replayExample); err != nil {
		return err
	}
	r, err := a.replayOf(ctx, ch, k, req)
	if err != nil {
		return err
	}
	if running := a.o.Catalogue.ReplayOf(k.No); running != nil && !req.DryRun { // before the count, which costs more
		setLocation(rc, replayPath(ch.ID, k.ID, running.Replay.ID()))
		return errReplayRunning
	}
	n, err := a.countReplay(ctx, k, &r)
	if err != nil {
		return err
	}
	if req.DryRun {
		return answerJSON(rc, fasthttp.StatusOK, apitype.ReplayEstimate{Matched: n.Messages, Bytes: n.Bytes,
			Estimated: n.Estimated, DeadLeftOut: n.DeadLeftOut,
			EstimatedSeconds: a.estimate(k, r.Rate, n.Messages), RemovedBefore: removedBefore(r.RemovedMs)})
	}
	r.Matched, r.Bytes, r.Estimated = n.Messages, n.Bytes, n.Estimated
	r, err = a.o.Store.CreateReplay(ctx, r)
	if errors.Is(err, durable.ErrReplayRunning) {
		setLocation(rc, replayPath(ch.ID, k.ID, r.ID()))
		return errReplayRunning
	}
	if err != nil {
		return err
	}
	failpoint.At(failpoint.AfterReplay)
	a.changed(ctx, rc)
	a.log.Info("a replay began", "channel", ch.ID, "consumer", k.ID, "replay", r.ID(), "messages", r.Matched, "request_id",
		requestID(rc))
	setLocation(rc, replayPath(ch.ID, k.ID, r.ID()))
	view := viewReplay(&r, durable.ReplayCounts{})
	view.DeadLeftOut = n.DeadLeftOut
	return answerJSON(rc, fasthttp.StatusAccepted, view)
}

// countReplay counts the messages of a replay. Counts with a filter read payloads, so one runs at a
// time of each channel.
func (a *API) countReplay(ctx context.Context, k *durable.Consumer, r *durable.Replay) (n jobs.ReplayCount, err error) {
	if r.Filter == "" {
		return jobs.CountReplay(ctx, a.o.Store, k, r, nil)
	}
	waiting, stop := context.WithTimeout(ctx, countWait)
	defer stop()
	who := share.Channel(k.ChannelNo)
	if a.counting.Wait(waiting, who, 1) != nil {
		return n, problem.ErrOverloaded
	}
	defer a.counting.Give(who, 1)
	return jobs.CountReplay(ctx, a.o.Store, k, r, &jobs.Matcher{Filter: filter.Of(r.Filter),
		Seen: a.o.Catalogue.Seen})
}

// replayExample is a body of a request for a replay.
const replayExample = `{"From":"2026-01-31T15:04:05Z","To":"2026-01-31T16:04:05Z"}`

// replayOf returns the replay that a request describes.
func (a *API) replayOf(ctx context.Context, ch *catalogue.Channel, k *durable.Consumer,
	req apitype.ReplayRequest) (durable.Replay, error) {
	r := durable.Replay{ChannelNo: k.ChannelNo, ConsumerNo: k.No, Filter: req.Filter}
	now := a.o.NowMs()
	from, err := replayTime("From", req.From)
	if err != nil {
		return r, err
	}
	to := now
	if req.To != "" {
		if to, err = replayTime("To", req.To); err != nil {
			return r, err
		}
	}
	if from > to || from > now {
		return r, invalidReplay("The member From must be a time before To and before now.")
	}
	r.After, r.Through = ident.Before(from), ident.Before(to+1)
	if to >= now {
		if r.Through, err = a.upToNow(ctx, k.ChannelNo); err != nil {
			return r, err
		}
	}
	removed, err := a.removedAfter(ctx, ch, from)
	if err != nil {
		return r, err
	}
	r.RemovedMs = min(removed, to)
	switch req.Only {
	case "", "delivered":
	case "dead":
		r.Of = durable.ReplayDead
	case "all":
		r.Of = durable.ReplayAll
	default:
		return r, invalidReplay("The member Only must be delivered, dead or all.")
	}
	if req.Filter != "" {
		if _, err := filter.New(req.Filter); err != nil {
			return r, invalidReplay("The member Filter %v.", err)
		}
	}
	rate, err := policy.ParseRate(req.Rate)
	if err != nil {
		return r, invalidReplay("The member Rate %v.", err)
	}
	if rate.N > 0 {
		r.Rate = rate.String()
	}
	return r, nil
}

func replayTime(member, text string) (int64, error) {
	t, err := apitype.ParseTime(text)
	if err != nil || t.UnixMilli() < 0 {
		return 0, invalidReplay("The member %s must be an RFC 3339 time, such as 2026-01-31T15:04:05Z.", member)
	}
	return t.UnixMilli(), nil
}

// estimate returns how many seconds that many messages take.
func (a *API) estimate(k *durable.Consumer, own string, messages int64) float64 {
	perSecond := float64(usualRate)
	rate, _ := policy.ParseRate(own)
	for _, r := range []policy.Rate{rate, a.o.Policies.Of(k.Policy).RateLimit} {
		if r.N > 0 {
			perSecond = min(perSecond, float64(r.N)/r.Per.Seconds())
		}
	}
	return math.Ceil(float64(messages)/perSecond*10) / 10
}

// removedAfter returns the time before which messages of a channel that are younger than from may have been
// removed, Unix ms; 0: none.
func (a *API) removedAfter(ctx context.Context, ch *catalogue.Channel, from int64) (int64, error) {
	kept, _, err := a.kept(ctx, ch)
	if err != nil || from >= kept {
		return 0, err
	}
	return kept, nil
}

func removedBefore(ms int64) *apitype.Time {
	if ms == 0 {
		return nil
	}
	return &apitype.Time{Time: time.UnixMilli(ms)}
}

func viewReplay(r *durable.Replay, n durable.ReplayCounts) apitype.Replay {
	at := func(ms int64) apitype.Time { return apitype.Time{Time: time.UnixMilli(ms)} }
	return apitype.Replay{
		ID: r.ID(), State: r.State.String(), From: at(r.After.Millis() + 1), To: at(r.Through.Millis()), Only: r.Of.String(),
		Filter: r.Filter, Rate: r.Rate,
		Matched: max(r.Matched, n.Replayed), Bytes: r.Bytes, Estimated: r.Estimated, Replayed: n.Replayed,
		Delivered: n.Delivered, Dead: n.Dead,
		StartedAt: at(r.CreatedMs), StateChangedAt: at(r.StateMs), RemovedBefore: removedBefore(r.RemovedMs),
	}
}

// replayInPath returns the replay that the path names, with its counts.
func (a *API) replayInPath(ctx context.Context, rc *fasthttp.RequestCtx) (*durable.Replay, error) {
	_, k, err := a.consumer(ctx, rc)
	if err != nil {
		return nil, err
	}
	no, err := strconv.ParseUint(param(rc, "replay"), 10, 32)
	if err != nil {
		return nil, errUnknownReplay
	}
	r, err := a.o.Store.Replay(ctx, uint32(no))
	if errors.Is(err, durable.ErrNotFound) || err == nil && (r.ConsumerNo != k.No || r.ID() != param(rc, "replay")) {
		return nil, errUnknownReplay
	}
	return &r, err
}

func (a *API) answerReplay(ctx context.Context, rc *fasthttp.RequestCtx, r *durable.Replay) error {
	n, err := a.o.Store.ReplayCounts(ctx, r)
	if err != nil {
		return err
	}
	return answerResource(rc, fasthttp.StatusOK, viewReplay(r, n), time.UnixMilli(max(r.StateMs, a.o.NowMs())), false)
}

func (a *API) getReplay(ctx context.Context, rc *fasthttp.RequestCtx) error {
	r, err := a.replayInPath(ctx, rc)
	if err != nil {
		return err
	}
	return a.answerReplay(ctx, rc, r)
}

func (a *API) listReplays(ctx context.Context, rc *fasthttp.RequestCtx) error {
	q, err := readPage(rc, defaultPage, maxPage)
	if err != nil {
		return err
	}
	ch, k, err := a.consumer(ctx, rc)
	if err != nil {
		return err
	}
	first := uint64(math.MaxUint32)
	if q.First != "" {
		if first, err = strconv.ParseUint(q.First, 10, 32); err != nil {
			return problem.New(fasthttp.StatusBadRequest, "unknown_first",
				"The parameter first names no replay of this consumer.")
		}
	}
	replays, err := a.o.Store.Replays(ctx, *k, uint32(first), q.Size+1)
	if err != nil {
		return err
	}
	view := apitype.ReplayList{Result: []apitype.Replay{}}
	for i := range replays {
		if i == q.Size {
			view.Pages = q.next(replaysPath(ch.ID, k.ID), replays[i].ID())
			break
		}
		n, err := a.o.Store.ReplayCounts(ctx, &replays[i])
		if err != nil {
			return err
		}
		view.Result = append(view.Result, viewReplay(&replays[i], n))
	}
	return answerResource(rc, fasthttp.StatusOK, view, time.UnixMilli(a.o.NowMs()), false)
}

func (a *API) pauseReplay(ctx context.Context, rc *fasthttp.RequestCtx) error {
	return a.setReplay(ctx, rc, durable.ReplayPaused)
}

func (a *API) resumeReplay(ctx context.Context, rc *fasthttp.RequestCtx) error {
	return a.setReplay(ctx, rc, durable.ReplayRunning)
}

func (a *API) cancelReplay(ctx context.Context, rc *fasthttp.RequestCtx) error {
	return a.setReplay(ctx, rc, durable.ReplayCancelled)
}

// setReplay answers with the replay after the change, which may have changed nothing.
func (a *API) setReplay(ctx context.Context, rc *fasthttp.RequestCtx, to durable.ReplayState) error {
	if err := noForm(rc); err != nil {
		return err
	}
	r, err := a.replayInPath(ctx, rc)
	if err != nil {
		return err
	}
	after, err := a.o.Store.SetReplayState(ctx, r.No, to)
	if errors.Is(err, durable.ErrReplayEnded) {
		return errReplayEnded
	}
	if err != nil {
		return err
	}
	if after.State != r.State {
		a.changed(ctx, rc)
		a.log.Info("the state of a replay changed", "replay", after.ID(), "state", after.State.String(), "request_id",
			requestID(rc))
	}
	return a.answerReplay(ctx, rc, &after)
}
