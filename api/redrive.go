package api

import (
	"context"
	"errors"
	"math"
	"strconv"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/feature/redrive"
	"github.com/penstock-broker/penstock/internal/model/apitype"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/model/policy"
	"github.com/penstock-broker/penstock/internal/model/problem"
)

var (
	errUnknownRedrive = problem.New(fasthttp.StatusNotFound, "redrive_not_found", "The consumer has no such redrive.")
	errRedriveEnded   = problem.New(fasthttp.StatusConflict, "redrive_ended",
		"The redrive is done or cancelled, so its state does not change any more.")
	errTooManyRedrives = problem.Newf(fasthttp.StatusConflict, "too_many_redrives",
		"The consumer has %d redrives that have not ended: wait until one is done, or cancel one.",
		durable.MaxRedrives)
	errNoDeletion = problem.New(fasthttp.StatusMethodNotAllowed, "method_not_allowed",
		"This broker deletes nothing by request: BROKER_ALLOW_DELETE is off.")
)

const (
	redriveExample = `{"Fingerprint":"3f9a0c41d2b7e685","Canary":true}`
	deleteExample  = `{"Fingerprint":"3f9a0c41d2b7e685"}`
)

func invalidRedrive(format string, args ...any) error {
	return problem.Newf(fasthttp.StatusBadRequest, "invalid_redrive", format, args...)
}

func redrivePath(channelID, consumerID, id string) string {
	return consumerPath(channelID, consumerID) + "/redrive/" + id
}

// A letters is the dead letters that a request means.
type letters struct {
	durable.DeadSelection
	picks []ident.ID // nil: not only single ones
	most  int64      // 0: all
}

// lettersOf reads which dead letters of a consumer a request means.
func lettersOf(k *durable.Consumer, s apitype.DeadSelection) (l letters, err error) {
	l.DeadSelection, err = deadSelection(letterWords{fingerprint: s.Fingerprint, reason: s.Reason, from: s.From,
		to: s.To},
		"The member ", func(name string) string { return name })
	if err != nil {
		return l, err
	}
	l.ConsumerNo, l.most = k.No, s.Limit
	switch {
	case s.Limit < 0:
		return l, invalidRedrive("The member Limit must not be negative.")
	case len(s.Jobs) > durable.MaxRedrivePicks:
		return l, invalidRedrive("The member Jobs must name at most %d jobs.", durable.MaxRedrivePicks)
	case s.Jobs != nil && len(s.Jobs) == 0:
		return l, invalidRedrive("The member Jobs must name a job. Without it all dead letters are meant.")
	}
	for i, job := range s.Jobs {
		id, err := ident.Parse(job)
		message, position, ok := id.Split()
		if err != nil || !ok || position != k.Position {
			return l, invalidRedrive("Number %d of the member Jobs is not the ID of a job of this consumer.", i+1)
		}
		l.picks = append(l.picks, message)
	}
	return l, nil
}

// countLetters counts the dead letters that are meant.
func (a *API) countLetters(ctx context.Context, l *letters) (n int64, approximate bool, err error) {
	if l.picks != nil {
		found, err := a.o.Store.DeadAmong(ctx, l.DeadSelection, l.picks)
		n = int64(len(found))
		if err != nil {
			return 0, false, err
		}
	} else if n, approximate, err = a.o.Store.CountDead(ctx, l.DeadSelection); err != nil {
		return 0, false, err
	}
	if l.most > 0 && n >= l.most {
		return l.most, false, nil
	}
	return n, approximate, nil
}

// postRedrive counts selected dead letters, or begins to redrive them.
func (a *API) postRedrive(ctx context.Context, rc *fasthttp.RequestCtx) error {
	ch, k, err := a.consumer(ctx, rc)
	if err != nil {
		return err
	}
	var req apitype.RedriveRequest
	if err := readObject(rc.Request.Body(), &req, redriveExample); err != nil {
		return err
	}
	l, err := lettersOf(k, req.DeadSelection)
	if err != nil {
		return err
	}
	r, err := redrivingOf(req)
	if err != nil {
		return err
	}
	if r.TargetNo, err = a.target(ctx, rc, ch, k, req); err != nil {
		return err
	}
	n, approximate, err := a.countLetters(ctx, &l)
	if err != nil {
		return err
	}
	if req.DryRun {
		return answerJSON(rc, fasthttp.StatusOK, apitype.RedriveEstimate{Matched: n, Approximate: approximate})
	}
	r.DeadSelection, r.Most, r.Matched, r.Approximate = l.DeadSelection, l.most, n, approximate
	r, err = a.o.Store.CreateRedriving(ctx, r, l.picks)
	switch {
	case errors.Is(err, durable.ErrTooManyRedrives):
		return errTooManyRedrives
	case errors.Is(err, durable.ErrNotFound):
		return errNoConsumer
	case err != nil:
		return err
	}
	if err := a.releaseFor(ctx, &r); err != nil { // as for a redrive of the whole DLQ
		a.log.Warn("a redrive began, and its consumer is still held", "channel", ch.ID, "consumer", k.ID, "error",
			err)
	}
	a.wakeRedrives()
	a.log.Info("a redrive began", "channel", ch.ID, "consumer", k.ID, "redrive", r.ID(), "letters", n, "request_id",
		requestID(rc))
	setLocation(rc, redrivePath(ch.ID, k.ID, r.ID()))
	return answerJSON(rc, fasthttp.StatusAccepted, a.viewRedrive(&r))
}

// target returns the number of the other consumer that gets the letters, 0 without one. It is for management: a
// consumer's tokens do not stand for what another one gets.
func (a *API) target(ctx context.Context, rc *fasthttp.RequestCtx, ch *catalogue.Channel, k *durable.Consumer,
	req apitype.RedriveRequest) (uint32, error) {
	if req.Target == "" {
		return 0, nil
	}
	if err := a.admit(ctx, rc, AccessManagement); err != nil {
		return 0, err
	}
	to := a.o.Catalogue.Consumer(ch.ID, req.Target)
	switch {
	case to == nil:
		return 0, invalidRedrive("The member Target names no consumer of this channel.")
	case to.No == k.No:
		return 0, invalidRedrive("The member Target must name another consumer. Without it the letters are opened again.")
	case req.Canary:
		return 0, invalidRedrive("The members Canary and Target exclude each other: a canary evaluates attempts of the " +
			"consumer whose letters they are.")
	case req.Limit > redrive.MaxTargetLimit:
		return 0, invalidRedrive("The member Limit must be at most %d with Target.", redrive.MaxTargetLimit)
	}
	return to.No, nil
}

// releaseFor ends the hold of the consumer whose jobs a redrive opens.
func (a *API) releaseFor(ctx context.Context, r *durable.Redriving) error {
	if r.TargetNo != 0 {
		return nil
	}
	return a.release(ctx, r.ConsumerNo)
}

func (a *API) wakeRedrives() {
	if a.o.WakeRedrives != nil {
		a.o.WakeRedrives()
	}
}

// redrivingOf returns the redrive that a request describes, without the letters.
func redrivingOf(req apitype.RedriveRequest) (r durable.Redriving, err error) {
	rate, err := policy.ParseRate(req.Rate)
	if err != nil {
		return r, invalidRedrive("The member Rate %v.", err)
	}
	if rate.N > 0 {
		r.Rate = rate.String()
	}
	r.Canary = req.Canary
	return r, nil
}

func (a *API) viewRedrive(r *durable.Redriving) apitype.Redrive {
	at := func(ms int64) apitype.Time { return apitype.Time{Time: time.UnixMilli(ms)} }
	v := apitype.Redrive{
		ID: r.ID(), State: r.State.String(), Stage: redrive.StageOf(r), Matched: max(r.Matched, r.Redriven),
		Approximate: r.Approximate, Redriven: r.Redriven, Delivered: r.Delivered, Dead: r.Dead, Reason: r.Reason,
		Rate: r.Rate, Canary: r.Canary, StartedAt: at(r.CreatedMs), StateChangedAt: at(r.StateMs),
		Selection: apitype.DeadSelection{Reason: r.Reasons.String(), To: textOfTime(r.ToMs), Limit: r.Most},
	}
	if r.HasFingerprint {
		v.Selection.Fingerprint = r.Fingerprint.String()
	}
	if r.FromMs > 0 {
		v.Selection.From = textOfTime(r.FromMs)
	}
	if r.TargetNo != 0 {
		if to := a.o.Catalogue.ConsumerByNo(r.TargetNo); to != nil && !to.Deleted() {
			v.Target = to.ID
		}
		if r.ReplayNo != 0 {
			v.Replay = strconv.FormatUint(uint64(r.ReplayNo), 10)
		}
	}
	return v
}

func textOfTime(ms int64) string { return time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z") }

// redriveInPath returns the redrive that the path names.
func (a *API) redriveInPath(ctx context.Context, rc *fasthttp.RequestCtx) (*durable.Redriving, error) {
	_, k, err := a.consumer(ctx, rc)
	if err != nil {
		return nil, err
	}
	no, err := strconv.ParseUint(param(rc, "redrive"), 10, 32)
	if err != nil {
		return nil, errUnknownRedrive
	}
	r, err := a.o.Store.Redriving(ctx, k.No, uint32(no))
	if errors.Is(err, durable.ErrNotFound) || err == nil && r.ID() != param(rc, "redrive") {
		return nil, errUnknownRedrive
	}
	return &r, err
}

func (a *API) answerRedrive(rc *fasthttp.RequestCtx, r *durable.Redriving) error {
	return answerResource(rc, fasthttp.StatusOK, a.viewRedrive(r), time.UnixMilli(max(r.StateMs, a.o.NowMs())), false)
}

func (a *API) getRedrive(ctx context.Context, rc *fasthttp.RequestCtx) error {
	r, err := a.redriveInPath(ctx, rc)
	if err != nil {
		return err
	}
	return a.answerRedrive(rc, r)
}

func (a *API) listRedrives(ctx context.Context, rc *fasthttp.RequestCtx) error {
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
				"The parameter first names no redrive of this consumer.")
		}
	}
	all, err := a.o.Store.Redrivings(ctx, k.No, uint32(first), q.Size+1)
	if err != nil {
		return err
	}
	view := apitype.RedriveList{Result: []apitype.Redrive{}}
	for i := range all {
		if i == q.Size {
			view.Pages = q.next(consumerPath(ch.ID, k.ID)+"/redrives", all[i].ID())
			break
		}
		view.Result = append(view.Result, a.viewRedrive(&all[i]))
	}
	return answerResource(rc, fasthttp.StatusOK, view, time.UnixMilli(a.o.NowMs()), false)
}

func (a *API) pauseRedrive(ctx context.Context, rc *fasthttp.RequestCtx) error {
	return a.setRedrive(ctx, rc, durable.ReplayPaused, func(r *durable.Redriving) bool {
		held := r.State == durable.RedrivePaused || r.State == durable.RedriveStopped
		return changeState(r, !held, durable.RedrivePaused)
	})
}

// resumeRedrive lets a redrive go on. One that its canary has stopped begins its stage again, with
// other letters.
func (a *API) resumeRedrive(ctx context.Context, rc *fasthttp.RequestCtx) error {
	return a.setRedrive(ctx, rc, durable.ReplayRunning, func(r *durable.Redriving) bool {
		if r.State == durable.RedriveStopped {
			r.StageJobs, r.StageOver, r.StageAgain, r.Reason = 0, 0, 0, ""
		}
		return changeState(r, r.State != durable.RedriveRunning, durable.RedriveRunning)
	})
}

func (a *API) cancelRedrive(ctx context.Context, rc *fasthttp.RequestCtx) error {
	return a.setRedrive(ctx, rc, durable.ReplayCancelled, func(r *durable.Redriving) bool {
		return changeState(r, r.State != durable.RedriveCancelled, durable.RedriveCancelled)
	})
}

func changeState(r *durable.Redriving, changes bool, to durable.RedrivingState) bool {
	if changes {
		r.State = to
	}
	return changes
}

// setRedrive answers with the redrive after the change, which may have changed nothing. replay is the state of
// its replay then, if it is one to another consumer. A crash between the two changes leaves the redrive as it
// was, and the repeated request does the rest.
func (a *API) setRedrive(ctx context.Context, rc *fasthttp.RequestCtx, replay durable.ReplayState,
	f func(*durable.Redriving) bool) error {
	if err := noForm(rc); err != nil {
		return err
	}
	r, err := a.redriveInPath(ctx, rc)
	if err != nil {
		return err
	}
	if r.ReplayNo != 0 && !r.State.Ended() {
		_, err := a.o.Store.SetReplayState(ctx, r.ReplayNo, replay)
		if err != nil && !errors.Is(err, durable.ErrReplayEnded) && !errors.Is(err, durable.ErrNotFound) {
			return err
		}
		a.changed(ctx, rc)
	}
	after, err := a.o.Store.ChangeRedriving(ctx, r.ConsumerNo, r.No, f)
	switch {
	case errors.Is(err, durable.ErrRedriveEnded):
		return errRedriveEnded
	case errors.Is(err, durable.ErrNotFound):
		return errUnknownRedrive
	case err != nil:
		return err
	}
	if after.State != r.State {
		a.wakeRedrives()
		a.log.Info("the state of a redrive changed", "consumer", r.ConsumerNo, "redrive", after.ID(), "state",
			after.State.String(), "request_id",
			requestID(rc))
	}
	return a.answerRedrive(rc, &after)
}

// deleteLetters removes selected dead letters from the DLQ. What it removed before an error stays removed,
// and a repeated request removes the rest.
func (a *API) deleteLetters(ctx context.Context, rc *fasthttp.RequestCtx) error {
	if !a.o.AllowDelete {
		rc.Response.Header.Set(fasthttp.HeaderAllow, "")
		return errNoDeletion
	}
	ch, k, err := a.consumer(ctx, rc)
	if err != nil {
		return err
	}
	var req apitype.DeadSelection
	if err := readObject(rc.Request.Body(), &req, deleteExample); err != nil {
		return err
	}
	l, err := lettersOf(k, req)
	if err != nil {
		return err
	}
	deleted, err := a.discardLetters(ctx, k, &l)
	if err != nil {
		return err
	}
	a.metrics.deleted.WithLabelValues("dead_letter").Add(float64(deleted))
	a.log.Info("dead letters were deleted", "channel", ch.ID, "consumer", k.ID, "letters", deleted, "request_id",
		requestID(rc))
	return answerJSON(rc, fasthttp.StatusOK, apitype.DeletedLetters{Deleted: deleted})
}

// discardLetters removes the dead letters that are meant, and returns how many.
func (a *API) discardLetters(ctx context.Context, k *durable.Consumer, l *letters) (deleted int64, err error) {
	if l.picks != nil {
		dead, err := a.o.Store.DeadAmong(ctx, l.DeadSelection, l.picks)
		if err != nil {
			return 0, err
		}
		if l.most > 0 {
			dead = dead[:min(int64(len(dead)), l.most)]
		}
		return int64(len(dead)), a.o.Store.Dispose(ctx, k.No, dead, durable.Discarded)
	}
	for from := (ident.ID{}); ; {
		most := deadPage
		if l.most > 0 {
			most = int(min(int64(most), l.most-deleted))
		}
		page, next, err := a.o.Store.DeadLetters(ctx, l.DeadSelection, from, false, most)
		if err != nil {
			return deleted, err
		}
		dead := make([]durable.DeadHead, len(page))
		for i, d := range page {
			dead[i] = durable.DeadHead{ID: d.ID, DiedMs: d.DiedMs}
		}
		if err := a.o.Store.Dispose(ctx, k.No, dead, durable.Discarded); err != nil {
			return deleted, err
		}
		if deleted += int64(len(dead)); next.IsZero() || l.most > 0 && deleted >= l.most {
			return deleted, nil
		}
		from = next
	}
}
