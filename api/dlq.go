package api

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/apitype"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/model/credentials"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/model/jobs"
	"github.com/penstock-broker/penstock/internal/model/problem"
)

func (a *API) getDLQ(ctx context.Context, rc *fasthttp.RequestCtx) error {
	q, err := readPage(rc, defaultPage, maxPage)
	if err != nil {
		return err
	}
	letters, down, err := readDeadQuery(rc, &q)
	if err != nil {
		return err
	}
	ch, k, err := a.consumer(ctx, rc)
	if err != nil {
		return err
	}
	return a.answerDLQ(ctx, rc, q, dlqOf{ch: ch, k: k, path: consumerPath(ch.ID, k.ID) + "/dlq",
		replies: ident.RepliesTo(ch.ID) != 0, letters: letters, down: down})
}

// getReplayDLQ lists the dead jobs of a replay. Their state belongs to the replay: the jobs of the
// consumer itself, and its DLQ, are as they were.
func (a *API) getReplayDLQ(ctx context.Context, rc *fasthttp.RequestCtx) error {
	q, err := readPage(rc, defaultPage, maxPage)
	if err != nil {
		return err
	}
	ch, k, err := a.consumer(ctx, rc)
	if err != nil {
		return err
	}
	r, err := a.replayInPath(ctx, rc)
	if err != nil {
		return err
	}
	return a.answerDLQ(ctx, rc, q, dlqOf{ch: ch, k: k.Generation(r), path: replayPath(ch.ID, k.ID, r.ID()) + "/dlq",
		replies: ident.RepliesTo(ch.ID) != 0})
}

// A dlqOf is the dead letters of a consumer, with the path of their list.
type dlqOf struct {
	ch      *catalogue.Channel
	k       *durable.Consumer
	path    string
	replies bool // they are replies to a producer
	letters durable.DeadSelection
	down    bool // newest message first
}

var noDeadLetters = apitype.DeadLetters{DeadJobs: []apitype.Job{}}

// answerDLQ answers with a page of dead letters.
func (a *API) answerDLQ(ctx context.Context, rc *fasthttp.RequestCtx, q pageQuery, of dlqOf) (err error) {
	ch, k := of.ch, of.k
	var from ident.ID
	if of.down {
		from = ident.Max()
	}
	if q.First != "" {
		if from, err = a.deadFrom(ctx, ch, k, q.First); err != nil {
			return err
		}
	}
	of.letters.ConsumerNo = k.No
	dead, next, err := a.o.Store.DeadLetters(ctx, of.letters, from, of.down, q.Size)
	if err != nil {
		return err
	}
	paths, err := a.pathIDs(ctx, ch, dead)
	if err != nil {
		return err
	}
	view := apitype.DeadLetters{DeadJobs: make([]apitype.Job, 0, len(dead))}
	at := k.ChangedAt
	for _, d := range dead {
		j := located{ch, k, jobs.Job{
			ID: d.ID, Status: jobs.Dead, Attempts: d.Attempts, ChangedAt: time.UnixMilli(d.DiedMs).UTC(),
			StatusCode: d.StatusCode, Error: d.Error, Reason: d.Reason, LeasesLost: d.LeasesLost, GivenBack: d.GivenBack,
			Worker: d.Worker,
		}, nil}
		at = newest(at, j.state.ChangedAt)
		v := j.view()
		if k.Type == durable.Pull {
			v.Detail = strings.ToValidUTF8(string(wholeRunes(d.Answer)), "\uFFFD")
		}
		v.Fingerprint, v.MessageURL = d.Fingerprint.String(), messagePath(ch.ID, paths[d.ID])
		if of.replies {
			if err := a.describeReply(ctx, ch, d.ID, &v); err != nil {
				return err
			}
		}
		view.DeadJobs = append(view.DeadJobs, v)
	}
	if !next.IsZero() {
		view.Pages = q.next(of.path, next.Job(k.Position).String())
	}
	return answerResource(rc, fasthttp.StatusOK, view, at, false)
}

// pathIDs returns the public IDs of the messages of dead letters. A message that is no longer stored
// keeps its internal ID.
func (a *API) pathIDs(ctx context.Context, ch *catalogue.Channel, dead []durable.DeadJob) (map[ident.ID]string, error) {
	ids, out := make([]ident.ID, len(dead)), make(map[ident.ID]string, len(dead))
	for i, d := range dead {
		ids[i], out[d.ID] = d.ID, d.ID.String()
	}
	found, err := a.o.Store.Senders(ctx, ch.No, ids)
	for i := range found {
		out[found[i].ID] = found[i].PathID()
	}
	return out, err
}

// deadFrom reads the parameter first of a DLQ: the ID of a message, or of a job of the
// consumer. The job may have been redriven meanwhile.
func (a *API) deadFrom(ctx context.Context, ch *catalogue.Channel, k *durable.Consumer,
	first string) (ident.ID, error) {
	if id, err := ident.Parse(first); err == nil {
		if message, pos, ok := id.Split(); ok && pos == k.Position {
			return message, nil
		}
	}
	id, err := a.locate(ctx, ch, first, nil)
	if errors.Is(err, errUnknownMessage) {
		return id, problem.New(fasthttp.StatusBadRequest, "unknown_first",
			"The parameter first names no job of this consumer and no message of the channel.")
	}
	return id, err
}

// requeueToken returns the token that a redrive of a whole DLQ needs: the field requeue, else that of
// its owner, whose header is name.
func requeueToken(rc *fasthttp.RequestCtx, name string) ([]byte, error) {
	f, err := readForm(rc, &redriveBody)
	if err != nil {
		return nil, err
	}
	if token, ok := f.form["requeue"]; ok {
		return []byte(token), nil
	}
	return credentials.Of(&rc.Request.Header, name)
}

// redriveDLQ gives every dead letter of a consumer new attempts. The jobs that it moved
// before an error stay moved, and a repeated request moves the rest.
func (a *API) redriveDLQ(ctx context.Context, rc *fasthttp.RequestCtx) error {
	token, err := requeueToken(rc, headerConsumerToken)
	if err != nil {
		return err
	}
	ch, k, err := a.consumer(ctx, rc)
	if err != nil {
		return err
	}
	if scoped(rc) == nil && !a.o.Catalogue.ConsumerTokenMatches(token, ch, k) {
		return problem.New(fasthttp.StatusBadRequest, "requeue_token_mismatch",
			"The field requeue, or without it X-Broker-Consumer-Token or Authorization: Bearer, must be the consumer's token.").
			OfToken()
	}
	if _, err := a.o.Jobs.RedriveAll(ctx, k.No); err != nil {
		return err
	}
	if err := a.release(ctx, k.No); err != nil {
		return err
	}
	return accepted(rc)
}
