package simulation

import (
	"context"
	"time"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/model/jobs"
)

// purge is people who empty the queues of consumers, and hasten delayed jobs, through any broker.
func (w *world) purge() {
	r := draw(w.seed, word("purge"))
	for w.plan.purges {
		time.Sleep(r.between(w.plan.active/12, w.plan.active/3))
		consumers := w.store.consumers()
		k := consumers[r.below(len(consumers))]
		act, forget, b := r.below(3), r.hit(300), w.broker(r.below(w.plan.brokers))
		if w.now() >= w.plan.active {
			return
		}
		if b == nil || w.hung[k.No] || ident.Reserved(w.store.channel(k.ChannelNo).ID) {
			continue
		}
		ctx, cancel := context.WithTimeout(context.Background(), 4*time.Second)
		if act == 0 {
			_, _ = b.service.RetryAll(ctx, k.No)
		} else {
			p := &jobs.Purge{Consumer: &k, Through: ident.Before(w.store.nowMs() + 1), Forget: forget}
			for range 10 {
				if _, err := b.service.Purge(ctx, p); err != nil || p.Done() {
					break
				}
			}
		}
		cancel()
	}
}

// purgeSpan is for how long a purge may have its jobs.
const purgeSpan = 30 * time.Second

// purged checks an end by a purge that is now on disk: the purge has the job itself, so nobody delivers it
// (I25).
func (c *checker) purged(l *life, o durable.Outcome, t *trace) {
	now := c.w.now()
	if g := t.live; (g == nil || g.life != l.no) && !c.disturbed.hit(0, now-purgeSpan, now) {
		c.fail(o.ID, "I25: consumer %d: purged by broker %d, which does not have the job", o.ConsumerNo, l.no)
	}
	if t.purgedAt == 0 {
		t.purgedAt, t.purged = now, true
	}
}
