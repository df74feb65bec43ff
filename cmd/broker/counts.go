package main

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/hotpath/metrics"
	"github.com/penstock-broker/penstock/internal/feature/sampler"
	"github.com/penstock-broker/penstock/internal/feature/statusevents"
	"github.com/penstock-broker/penstock/internal/model/jobs"
)

// A recorder is the store of the parts that record outcomes: it adds the events of producers, and counts.
type recorder struct {
	*statusevents.Recorder
	book *metrics.Book
}

// Record is durable.Store.Record.
func (r *recorder) Record(ctx context.Context, outcomes []durable.Outcome) error {
	err := r.Recorder.Record(ctx, outcomes)
	if err == nil {
		r.book.Ended(outcomes)
	}
	return err
}

// RecordLeaseEnds is durable.Store.RecordLeaseEnds.
func (r *recorder) RecordLeaseEnds(ctx context.Context, consumer uint32, ends []durable.LeaseEnd, atMs int64) error {
	err := r.Recorder.RecordLeaseEnds(ctx, consumer, ends, atMs)
	if err == nil {
		r.book.LeasesLost(consumer, len(ends))
	}
	return err
}

// recorder returns the store of the parts that record outcomes.
func (b *broker) recorder() *recorder {
	return &recorder{Recorder: &statusevents.Recorder{Store: b.store, Catalogue: b.catalogue}, book: b.book}
}

// newCounts makes the counts of the data plane, those by consumer and channel, and what counts the jobs of
// all consumers.
func (b *broker) newCounts(registry *prometheus.Registry) *metrics.Metrics {
	counts := metrics.New(registry)
	b.book = metrics.NewBook(b.catalogue.Account)
	counts.Book = b.book
	b.sampler = sampler.New(sampler.Options{Counter: &jobs.Overview{Store: b.store, Queue: b.queue},
		Catalogue: b.catalogue, NowMs: b.node.NowMs, Log: b.log})
	b.sampler.Watch(func(*sampler.Sample) {
		b.book.Prune(func(no uint32) bool {
			k := b.catalogue.ConsumerByNo(no)
			return k != nil && !k.Deleted()
		}, func(no uint32) bool {
			ch := b.catalogue.ChannelByNo(no)
			return ch != nil && !ch.Deleted
		})
	})
	return counts
}
