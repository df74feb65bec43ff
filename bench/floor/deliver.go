package main

import (
	"context"
	"sync"
	"time"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/ident"
)

// The pauses in which batches grow are those of the broker: hotpath/fanout and hotpath/outcome.
const (
	fanoutLinger  = 3 * time.Millisecond
	outcomeLinger = 10 * time.Millisecond
	batch         = 1024
)

// A cache has the messages on their way. A message that is not there is lost to a floor, which reads
// none from the store: it is for short runs whose backlog fits into memory.
type cache struct {
	parts [64]struct {
		sync.Mutex
		messages map[ident.ID]*durable.Message
	}
}

func (c *cache) put(m *durable.Message) {
	p := &c.parts[int(m.ID[11]^m.ID[7])%len(c.parts)]
	p.Lock()
	defer p.Unlock()
	if p.messages == nil {
		p.messages = map[ident.ID]*durable.Message{}
	}
	p.messages[m.ID] = m
}

func (c *cache) take(id ident.ID) *durable.Message {
	p := &c.parts[int(id[11]^id[7])%len(c.parts)]
	p.Lock()
	defer p.Unlock()
	m := p.messages[id]
	delete(p.messages, id)
	return m
}

// committed is told of stored messages before their producers are answered.
func (f *floor) committed(msgs []*durable.Message) {
	if f.consumer.Load() == nil || len(msgs) == 0 {
		return
	}
	ids := make([]ident.ID, len(msgs))
	for i, m := range msgs {
		f.cache.put(m)
		ids[i] = m.ID
	}
	f.fanout.add(ids...)
}

// start starts everything behind the commit.
func (f *floor) start(ctx context.Context) {
	go f.keepNode(ctx)
	f.fanout = newGroup(1, 2*batch, fanoutLinger, func(ids []ident.ID) {
		if err := f.queue.add(ctx, ids); err != nil {
			f.log.Error("jobs are lost", "jobs", len(ids), "error", err)
		}
	})
	f.ends = newGroup(1, batch, outcomeLinger, func(done []delivered) {
		ids := make([]ident.ID, len(done))
		for i, d := range done {
			ids[i] = d.id
		}
		err := f.outcomes.record(ctx, done)
		if err == nil {
			err = f.queue.remove(ctx, ids)
		}
		if err != nil {
			f.log.Error("outcomes are lost", "outcomes", len(done), "error", err)
		}
	})
	jobs := make(chan *durable.Message, workers)
	for range workers {
		go f.work(jobs)
	}
	go f.claim(ctx, jobs)
}

// claim takes jobs as fast as the workers take them over.
func (f *floor) claim(ctx context.Context, jobs chan<- *durable.Message) {
	for ctx.Err() == nil {
		ids, err := f.queue.claim(ctx)
		if err != nil {
			f.log.Error("no claim", "error", err)
		}
		if len(ids) == 0 {
			time.Sleep(empty)
			continue
		}
		for _, id := range ids {
			if m := f.cache.take(id); m != nil {
				jobs <- m
			}
		}
	}
}

func (f *floor) work(jobs <-chan *durable.Message) {
	for m := range jobs {
		if err := f.poster.post(f.consumer.Load(), m); err != nil {
			f.log.Error("a delivery is lost", "error", err)
			continue
		}
		f.ends.add(delivered{m.ID, time.Now().UnixMilli()})
	}
}

// empty is the pause after a claim that found nothing.
const empty = 3 * time.Millisecond
