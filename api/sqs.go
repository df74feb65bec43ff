package api

import (
	"context"
	"crypto/rand"
	"errors"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/feature/sqs"
	"github.com/penstock-broker/penstock/internal/model/auditlog"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/model/jobs"
	"github.com/penstock-broker/penstock/internal/model/problem"
	"github.com/penstock-broker/penstock/internal/tool/answer"
	"github.com/penstock-broker/penstock/internal/tool/request"
)

// SQS answers the requests of SQS clients: an sqs.Door.
type SQS interface {
	Serve(rc *fasthttp.RequestCtx, from sqs.Caller)
}

// serveSQS hands a request to the door for SQS clients, with what it may do.
func (a *API) serveSQS(rc *fasthttp.RequestCtx) error {
	open := a.o.OpenManagement && a.checkOpen(rc) == nil
	if open {
		answer.SetKey(rc, a.manager(rc))
	}
	a.o.SQS.Serve(rc, sqs.Caller{Open: open, Manage: queues{a}})
	return nil
}

// queues changes resources for SQS clients: it is their sqs.Manager.
type queues struct{ *API }

// deed returns a context in which an SQS client changes a resource: only open management may.
func (q queues) deed(ctx context.Context, rc *fasthttp.RequestCtx, action, resource string) context.Context {
	d := auditlog.NewDeed("open management, by SQS", q.addressOf(rc), action, resource)
	d.Portray = q.o.Portray
	return auditlog.With(ctx, d)
}

// CreateQueue makes a channel and a consumer of it. A crash between the two leaves the channel, which the next
// call takes.
func (q queues) CreateQueue(ctx context.Context, rc *fasthttp.RequestCtx, n sqs.Name, fields map[string]string) (bool,
	error) {
	if err := q.fresh(ctx); err != nil {
		return false, err
	}
	absent := false
	if q.o.Catalogue.Channel(n.Channel) == nil {
		if err := q.makeChannel(ctx, rc, n.Channel); err != nil {
			return false, err
		}
	}
	pull := durable.Pull
	put := durable.ConsumerPut{Put: durable.Put{ID: n.Consumer, NewToken: rand.Text(), Exists: &absent},
		ChannelID: n.Channel, Type: &pull, Policy: q.merge(fields)}
	_, made, err := q.o.Store.PutConsumer(q.deed(ctx, rc, "put consumer", consumerPath(n.Channel, n.Consumer)), put)
	if errors.Is(err, durable.ErrPrecondition) {
		return false, q.fresh(ctx)
	}
	if err != nil {
		return false, badField(err)
	}
	q.log.Info("an SQS client made a queue", "channel", n.Channel, "consumer", n.Consumer, "request_id", requestID(rc))
	q.changed(ctx, rc)
	return made, nil
}

// makeChannel makes a channel in this store, unless it is there.
func (q queues) makeChannel(ctx context.Context, rc *fasthttp.RequestCtx, id string) error {
	if q.leads() {
		to, err := q.o.Stores.Place(ctx, id, nil)
		if err != nil {
			return err
		}
		if to.API != nil {
			return problem.Newf(fasthttp.StatusBadRequest, "store_fixed", "The channel %s is in another store, which SQS "+
				"clients reach with an access key of the channel. Nothing was made.", id)
		}
	}
	absent := false
	of := q.deed(ctx, rc, "put channel", channelPath(id))
	_, _, err := q.o.Store.PutChannel(of, durable.Put{ID: id, NewToken: rand.Text(), Exists: &absent})
	if errors.Is(err, durable.ErrPrecondition) {
		return nil
	}
	return err
}

func (q queues) merge(fields map[string]string) func(record string) (string, error) {
	return func(record string) (string, error) { return q.o.Policies.Merge(record, fields, time.Now()) }
}

// ChangeQueue sets fields of a consumer that exists.
func (q queues) ChangeQueue(ctx context.Context, rc *fasthttp.RequestCtx, n sqs.Name, fields map[string]string) error {
	exists := true
	put := durable.ConsumerPut{Put: durable.Put{ID: n.Consumer, Exists: &exists}, ChannelID: n.Channel,
		Policy: q.merge(fields)}
	change := watchRecord(&put.Policy)
	k, _, err := q.o.Store.PutConsumer(q.deed(ctx, rc, "put consumer", consumerPath(n.Channel, n.Consumer)), put)
	switch {
	case errors.Is(err, durable.ErrPrecondition), errors.Is(err, durable.ErrNotFound):
		return catalogue.ErrUnknownConsumer
	case err != nil:
		return badField(err)
	}
	q.changed(ctx, rc)
	q.markConsumer(ctx, rc, false, change, n.Channel, &k)
	return nil
}

// MayDelete reports whether anything may be deleted.
func (q queues) MayDelete() bool { return q.o.AllowDelete }

// DeleteQueue deletes a consumer. Its channel stays.
func (q queues) DeleteQueue(ctx context.Context, rc *fasthttp.RequestCtx, n sqs.Name) error {
	of := q.deed(ctx, rc, "delete consumer", consumerPath(n.Channel, n.Consumer))
	_, err := q.o.Store.DeleteConsumer(of, n.Channel, durable.Put{ID: n.Consumer})
	if errors.Is(err, durable.ErrNotFound) {
		return catalogue.ErrUnknownConsumer
	}
	if err == nil {
		q.forgotten(ctx, rc, "consumer", "channel", n.Channel, "consumer", n.Consumer)
	}
	return err
}

// PurgeQueue ends the queued jobs of a consumer, which no DLQ lists then.
func (q queues) PurgeQueue(ctx context.Context, rc *fasthttp.RequestCtx, k *durable.Consumer) error {
	if err := rc.Conn().SetWriteDeadline(time.Now().Add(stepsWithin + stepsAnswer)); err != nil {
		return err
	}
	channel := q.o.Catalogue.ChannelByNo(k.ChannelNo)
	if channel == nil {
		return catalogue.ErrUnknownChannel
	}
	request.Of(rc).Bind(auditlog.DeedKey{}, auditlog.Of(q.deed(request.Of(rc), rc, "purge consumer",
		consumerPath(channel.ID, k.ID))))
	through, err := q.upToNow(ctx, k.ChannelNo)
	if err != nil {
		return err
	}
	ended, err := q.purge(rc, &jobs.Purge{Consumer: k, Through: through, Forget: true})
	if ended > 0 {
		q.log.Info("queued jobs of a consumer were purged", "consumer", k.ID, "jobs", ended, "forget", true, "request_id",
			requestID(rc))
	}
	return err
}

// Sender returns the producer that stands for SQS clients, and makes it for the first of them.
func (q queues) Sender(ctx context.Context, rc *fasthttp.RequestCtx, id string) (*durable.Producer, error) {
	if p := q.o.Catalogue.Producer(id); p != nil {
		return p, nil
	}
	absent := false
	_, _, err := q.o.Store.PutProducer(ctx, durable.Put{ID: id, NewToken: rand.Text(), Exists: &absent})
	if err != nil && !errors.Is(err, durable.ErrPrecondition) {
		return nil, err
	}
	if err := q.fresh(ctx); err != nil {
		return nil, err
	}
	if q.o.Announce != nil {
		q.o.Announce()
	}
	p := q.o.Catalogue.Producer(id)
	if p == nil { // deleted at once
		return nil, catalogue.ErrUnknownProducer
	}
	return p, nil
}

// countedSchedules bounds the scheduled messages that are counted for one queue.
const countedSchedules = 10_000

// Depth counts the messages of a consumer. Those that are to come later are the scheduled ones of the channel.
func (q queues) Depth(ctx context.Context, k *durable.Consumer) (d sqs.Depth, err error) {
	b, err := q.o.Jobs.Backlog(ctx, *k)
	if err != nil {
		return d, err
	}
	c, err := q.o.Store.Count(ctx, k.ChannelNo, countedSchedules)
	return sqs.Depth{Waiting: b.Queued - b.Delayed, InFlight: b.InFlight, Delayed: b.Delayed + c.Waiting}, err
}
