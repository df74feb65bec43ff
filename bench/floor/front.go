package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/url"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/api"
	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/hotpath/accept"
	"github.com/penstock-broker/penstock/hotpath/metrics"
	"github.com/penstock-broker/penstock/hotpath/publish"
	"github.com/penstock-broker/penstock/internal/tool/egress"
	"github.com/penstock-broker/penstock/internal/tool/share"
)

// The bounds of the broker.
const (
	waitingRequests = 8192
	bodyBytes       = 256 << 20
	maxBody         = 1 << 20
)

// A posted message waits for its transaction.
type posted struct {
	msg  durable.Message
	done chan error
}

// serve answers until the listener fails.
func (f *floor) serve(address string) error {
	broadcast := f.plainFront()
	if f.with["accept"] {
		broadcast = f.guardedFront()
	}
	handler := func(rc *fasthttp.RequestCtx) {
		switch {
		case rc.IsPost():
			broadcast(rc)
		case rc.IsPut():
			if err := f.register(rc); err != nil {
				rc.Error(err.Error(), fasthttp.StatusBadRequest)
				return
			}
			rc.SetStatusCode(fasthttp.StatusCreated)
		case string(rc.Path()) == "/readyz":
			rc.SetStatusCode(fasthttp.StatusOK)
		default: // books, dead letters and the version: there are none
			rc.SetStatusCode(fasthttp.StatusNotFound)
		}
	}
	if f.with["accept"] {
		return api.NewServer(handler, api.ServerOptions{Log: f.log}).ListenAndServe(address)
	}
	return (&fasthttp.Server{Handler: handler, NoDefaultServerHeader: true}).ListenAndServe(address)
}

// plainFront takes the payload and waits for the store.
func (f *floor) plainFront() fasthttp.RequestHandler {
	commits := newGroup(2, 1024, 0, func(batch []*posted) {
		msgs := make([]*durable.Message, len(batch))
		for i, p := range batch {
			msgs[i] = &p.msg
		}
		errs := f.inserts.insert(context.Background(), msgs)
		f.committed(stored(msgs, errs))
		for i, p := range batch {
			p.done <- errs[i]
		}
	})
	wakes := sync.Pool{New: func() any { return make(chan error, 1) }}
	return func(rc *fasthttp.RequestCtx) {
		ch, producer := f.channel.Load(), f.producer.Load()
		if ch == nil || producer == nil {
			rc.SetStatusCode(fasthttp.StatusNotFound)
			return
		}
		p := &posted{done: wakes.Get().(chan error)}
		p.msg = durable.Message{ID: f.node.IDs().Next(), ChannelNo: ch.No, ProducerNo: producer.No, Audience: ch.Audience,
			Shape:       ch.Shape,
			ContentType: "application/octet-stream", Payload: append([]byte(nil), rc.PostBody()...)}
		commits.add(p)
		err := <-p.done
		wakes.Put(p.done)
		if err != nil {
			rc.Error(err.Error(), fasthttp.StatusServiceUnavailable)
			return
		}
		rc.Response.Header.Set("Location", "/channel/"+ch.ID+"/message/"+p.msg.PathID())
		rc.SetStatusCode(fasthttp.StatusCreated)
	}
}

// stored returns the messages that have no error.
func stored(msgs []*durable.Message, errs []error) (all []*durable.Message) {
	for i, m := range msgs {
		if errs[i] == nil {
			all = append(all, m)
		}
	}
	return all
}

// An acceptStore is the store of a floor, as hotpath/accept wants it.
type acceptStore struct{ *floor }

func (s acceptStore) Insert(ctx context.Context, _ durable.NodeLease, batch []*durable.Message) []error {
	return s.inserts.insert(ctx, batch)
}

func (s acceptStore) Schedule(ctx context.Context, node durable.NodeLease, batch []*durable.Scheduled) []error {
	return s.durable.Schedule(ctx, node, batch)
}

func (s acceptStore) ChangeScheduled(ctx context.Context, c durable.ScheduleChange) (*durable.Scheduled, error) {
	return s.durable.ChangeScheduled(ctx, c)
}

// guardedFront is the way in of the broker.
func (f *floor) guardedFront() fasthttp.RequestHandler {
	bodies, counts := share.New(share.Options{Most: bodyBytes}), metrics.New(prometheus.NewRegistry())
	p := publish.New(publish.Options{
		Submitter: accept.New(accept.Options{
			Store: acceptStore{f}, Catalogue: f.catalogue, Node: f.node, Admission: accept.NewAdmission(waitingRequests),
			Committed: f.committed, Bodies: bodies, Metrics: counts, Log: f.log,
		}),
		Catalogue: f.catalogue, MaxBody: maxBody, TokenHeader: "X-Broker-Consumer-Token", Bodies: bodies,
		NowMs: f.node.NowMs, Receipts: f.durable, Metrics: counts,
	})
	go p.Run(context.Background())
	return func(rc *fasthttp.RequestCtx) {
		part := strings.Split(string(rc.Path()), "/") // "", channel, ID, broadcast
		if len(part) != 4 || part[3] != "broadcast" {
			rc.SetStatusCode(fasthttp.StatusNotFound)
			return
		}
		p.Broadcast(rc, part[2])
	}
}

// register stores the resource of a PUT and takes it for the one that is measured.
func (f *floor) register(rc *fasthttp.RequestCtx) error {
	form, err := url.ParseQuery(string(rc.PostBody()))
	if err != nil {
		return err
	}
	ctx := context.Background()
	token := form.Get("token")
	part := strings.Split(string(rc.Path()), "/")[1:]
	put := durable.Put{ID: part[len(part)-1], Token: &token, NewToken: rand.Text()}
	switch {
	case len(part) == 2 && part[0] == "producer":
		_, _, err = f.durable.PutProducer(ctx, put)
	case len(part) == 2 && part[0] == "channel":
		_, _, err = f.durable.PutChannel(ctx, put)
	case len(part) == 4 && part[2] == "consumer":
		callback := form.Get("callbackUrl")
		_, _, err = f.durable.PutConsumer(ctx, durable.ConsumerPut{Put: put, ChannelID: part[1], CallbackURL: &callback})
	default:
		err = fmt.Errorf("no such resource: %s", rc.Path())
	}
	if err != nil {
		return err
	}
	if err := f.catalogue.Refresh(ctx); err != nil {
		return err
	}
	return f.choose(part)
}

// choose takes the registered resource for the one that is measured.
func (f *floor) choose(part []string) error {
	if part[0] == "producer" {
		f.producer.Store(f.catalogue.Producer(part[1]))
		return nil
	}
	if f.channel.Store(f.catalogue.Channel(part[1])); len(part) < 4 {
		return nil
	}
	k := f.catalogue.Consumer(part[1], part[3])
	target, err := f.client.Target(egress.ToConsumers, k.CallbackURL, k.Protocol)
	if err != nil {
		return err
	}
	f.target.Store(target)
	if plain, ok := f.poster.(*plainPoster); ok {
		u, err := url.Parse(k.CallbackURL)
		if err != nil {
			return err
		}
		plain.client.Addr, plain.client.MaxConns = u.Host, workers
	}
	f.consumer.Store(k)
	return nil
}

// keepNode renews the number of this process until ctx ends.
func (f *floor) keepNode(ctx context.Context) {
	if err := f.node.Run(ctx); err != nil && ctx.Err() == nil {
		f.log.Error("the node number is lost", "error", err)
	}
}
