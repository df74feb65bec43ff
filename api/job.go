package api

import (
	"context"
	"errors"

	"github.com/valyala/fasthttp"
	"golang.org/x/sync/errgroup"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/feature/presence"
	"github.com/penstock-broker/penstock/internal/model/apitype"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/model/jobs"
	"github.com/penstock-broker/penstock/internal/model/problem"
	"github.com/penstock-broker/penstock/internal/tool/guard"
	"github.com/penstock-broker/penstock/redisq"
)

// jobLookups is the number of concurrent look-ups of job states for one message: a page of
// 1000 jobs must not take the connections of the hot path.
const jobLookups = 4

// A located is a job with its channel and consumer, which its links contain.
type located struct {
	channel  *catalogue.Channel
	consumer *durable.Consumer
	state    jobs.Job
	held     *apitype.Time // until when its consumer is held, of a job that waits
}

func (j located) id() string { return j.state.ID.Job(j.consumer.Position).String() }

func (j located) path() string {
	return consumerPath(j.channel.ID, j.consumer.ID) + "/job/" + j.id()
}

// over reports whether the job has ended. A redrive may open a dead job again.
func (j located) over() bool {
	return j.state.Status == jobs.Delivered || j.state.Status == jobs.Dead || j.state.Status == jobs.Filtered
}

// known reports whether the store or the queue has a trace of the job.
func (j located) known() bool {
	return j.state.Status != jobs.Queued || j.state.Attempts > 0 || j.state.Standing.State != redisq.Missing
}

func (j located) view() apitype.Job {
	v := apitype.Job{
		ID: j.id(), ListenerEndpoint: j.consumer.CallbackURL, ListenerName: j.consumer.Name,
		Status: j.state.Status, StatusChangedAt: apitype.Time{Time: j.state.ChangedAt}, Attempts: j.state.Attempts,
		Reason: j.state.Error, ReasonCode: j.state.Reason.String(), StatusCode: j.state.StatusCode,
	}
	v.HeldUntil = j.held
	if !j.state.NextAt.IsZero() {
		v.NextAttemptAt = &apitype.Time{Time: j.state.NextAt}
	}
	if j.state.Status == jobs.InFlight && !j.state.Standing.At.IsZero() {
		v.LeaseUntil = &apitype.Time{Time: j.state.Standing.At}
	}
	v.Worker, v.WorkerVersion = presence.Held(j.state.Worker)
	if j.state.Status != jobs.Delivered && j.state.Status != jobs.Filtered {
		v.LeasesLost, v.GivenBack = &j.state.LeasesLost, &j.state.GivenBack
	}
	if j.state.Status == jobs.Dead && !j.consumer.Deleted() && j.consumer.Replay == nil {
		v.JobRequeueURL = j.path() + "/requeue-dead-job"
	}
	return v
}

// hideConsumer removes what the producer of the message must not see: the callback, which
// may contain a secret, and texts that may name it.
func hideConsumer(v *apitype.Job) {
	v.ListenerEndpoint, v.Reason, v.Detail, v.Worker, v.WorkerVersion = "", "", "", "", ""
}

func (j located) viewInMessage(messagePath string) apitype.Job {
	v := j.view()
	v.ConsumerID = j.consumer.ID
	if j.consumer.Deleted() { // the links of another consumer with that ID
		return v
	}
	v.ConsumerURL = consumerPath(j.channel.ID, j.consumer.ID)
	v.JobURL, v.RetriggerURL = j.path(), messagePath+"/job/"+j.id()+"/re-trigger"
	return v
}

// jobsOf returns up to n jobs of a message in the order of their IDs, from the position start.
// next is the position of the job after them, or the end of positions.
func (a *API) jobsOf(ctx context.Context, ch *catalogue.Channel, m *durable.Message, start, n int) (page []located,
	next int, err error) {
	head := m.Head()
	var consumers []*durable.Consumer
	for next = start; next < len(ch.Consumers); next++ {
		if !shown(ch, head, next) {
			continue
		}
		if len(consumers) == n {
			break
		}
		consumers = append(consumers, ch.Consumers[next])
	}
	page = make([]located, len(consumers))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(jobLookups)
	for i, k := range consumers {
		g.Go(func() error {
			return guard.Do("states of jobs", func() error {
				state, err := a.stateOf(ctx, k, head)
				page[i] = located{ch, k, state, a.heldJob(ctx, k, state)}
				return err
			})
		})
	}
	return page, next, g.Wait()
}

// heldJob returns until when a job waits because its consumer is held, nil where it does not.
func (a *API) heldJob(ctx context.Context, k *durable.Consumer, state jobs.Job) *apitype.Time {
	if state.Status != jobs.Queued || k.Type != durable.Push {
		return nil
	}
	until, _ := a.held(ctx, k.No)
	return until
}

// stateOf returns the state of a job of a message that is for the consumer.
func (a *API) stateOf(ctx context.Context, k *durable.Consumer, h durable.Head) (jobs.Job, error) {
	if k.LeftOut(h) {
		return jobs.Job{ID: h.ID, Status: jobs.Filtered, ChangedAt: h.ID.Time(),
			Standing: redisq.Standing{State: redisq.Missing}}, nil
	}
	states, err := a.o.Jobs.StatesOf(ctx, k, []ident.ID{h.ID})
	if err != nil {
		return jobs.Job{}, err
	}
	return states[0], nil
}

var errUnknownJob = problem.New(fasthttp.StatusNotFound, "job_not_found", "There is no such job here.")

// jobInPath returns the message, without payload, of the job of that consumer that the path
// names. A job of another consumer or channel is not found: the job ID contains the
// consumer's position, and the message must exist in this channel.
func (a *API) jobInPath(ctx context.Context, rc *fasthttp.RequestCtx, ch *catalogue.Channel,
	k *durable.Consumer) (*durable.Message, error) {
	id, err := ident.Parse(param(rc, "job"))
	if err != nil {
		return nil, errUnknownJob
	}
	messageID, pos, ok := id.Split()
	if !ok || pos != k.Position {
		return nil, errUnknownJob
	}
	m, err := a.headline(ctx, ch, messageID)
	if errors.Is(err, errUnknownMessage) || err == nil && !k.Concerns(m.Head()) && !k.LeftOut(m.Head()) {
		return nil, errUnknownJob
	}
	return m, err
}

func (a *API) getJob(ctx context.Context, rc *fasthttp.RequestCtx) error {
	ch, k, err := a.consumer(ctx, rc)
	if err != nil {
		return err
	}
	m, err := a.jobInPath(ctx, rc, ch, k)
	if err != nil {
		return err
	}
	producer := publisher(rc)
	if producer != nil && m.ProducerNo != producer.No {
		return errUnknownJob
	}
	state, err := a.stateOf(ctx, k, m.Head())
	if err != nil {
		return err
	}
	j := located{ch, k, state, a.heldJob(ctx, k, state)}
	v := j.view()
	v.ChannelURL, v.ConsumerURL = channelPath(ch.ID), consumerPath(ch.ID, k.ID)
	v.MessageURL = messagePath(ch.ID, m.PathID())
	if p := a.o.Catalogue.ProducerByNo(m.ProducerNo); p != nil && !p.Deleted {
		v.ProducerURL = producerPath(p.ID)
	}
	past, err := a.history(ctx, j, &v)
	if err != nil {
		return err
	}
	var replays []apitype.ReplayedJob // not for producers
	if !a.forProducer(rc) {
		if replays, err = a.replaysOf(ctx, k, m.ID); err != nil {
			return err
		}
	}
	at := newest(newest(newest(m.ID.Time(), state.ChangedAt), k.ChangedAt), lastAttempt(past))
	if a.forProducer(rc) {
		hideConsumer(&v)
		hideAnswers(past)
	}
	return answerResource(rc, fasthttp.StatusOK, apitype.JobDetail{Job: v, History: past, Replays: replays}, at,
		j.over() && len(replays) == 0)
}
