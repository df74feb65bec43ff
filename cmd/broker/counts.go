package main

import (
	"context"
	"fmt"
	"os"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/hotpath/metrics"
	"github.com/penstock-broker/penstock/internal/feature/history"
	"github.com/penstock-broker/penstock/internal/feature/sampler"
	"github.com/penstock-broker/penstock/internal/feature/statusevents"
	"github.com/penstock-broker/penstock/internal/model/jobs"
	"github.com/penstock-broker/penstock/internal/tool/guard"
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
	b.history, b.fleet = b.newHistory(registry), b.newFleet(counts)
	return counts
}

// keepNotes writes what this broker noted and counted, until ctx ends.
func (b *broker) keepNotes(ctx context.Context) {
	var wg sync.WaitGroup
	wg.Go(func() { guard.Loop(ctx, "notes of attempts", b.notebook.Run) })
	wg.Go(func() { guard.Loop(ctx, "history of counts", b.history.Run) })
	wg.Go(func() { guard.Loop(ctx, "note of this broker", b.fleet.Run) })
	wg.Wait()
}

// newHistory makes what writes the history of this broker.
func (b *broker) newHistory(registry *prometheus.Registry) *history.Recorder {
	host, _ := os.Hostname()
	return history.New(history.Options{
		Store: b.store, Book: b.book.Snapshot, ChannelOf: func(no uint32) uint32 {
			if k := b.catalogue.ConsumerByNo(no); k != nil && !k.Deleted() {
				return k.ChannelNo
			}
			return 0
		},
		Oldest: b.oldest, Owns: b.node.Owns, NowMs: b.node.NowMs, Version: version,
		Name:       fmt.Sprintf("%d, %s,", b.nodeNo(), nodeName(host, os.Getpid(), b.cfg)),
		Registerer: registry, Log: b.log,
	})
}

// oldest returns the ages in ms of the oldest waiting jobs, as the last sample has them. One that is older
// than a second round says nothing about the present.
func (b *broker) oldest() map[uint32]int64 {
	ages := map[uint32]int64{}
	s := b.sampler.Latest()
	if s == nil || b.node.NowMs()-s.At.UnixMilli() > (2*sampler.Every).Milliseconds() {
		return ages
	}
	for no, level := range s.Of {
		if !level.Oldest.IsZero() {
			ages[no] = s.At.Sub(level.Oldest).Milliseconds()
		}
	}
	return ages
}
