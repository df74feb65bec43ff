package simulation

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/policy"
	"github.com/penstock-broker/penstock/redisq"
)

// policy is the policy of the next consumer of a channel, "" if it has none.
func (w *world) policy(channel uint32, kind durable.ConsumerType) string {
	set := map[string]string{}
	if r := draw(w.seed, word("tombstone"), uint64(channel)); w.plan.holds && !r.hit(500) {
		set["tombstoneAfter"], set["tombstoneWindow"] = "2", "2s"
	}
	r := draw(w.seed, word("policy"), uint64(channel), uint64(len(w.store.consumers())))
	if w.plan.orders && r.hit(700) {
		set["ordered"], set["onBlocked"] = "true", []string{"block", "block", "skip", "dead-letter-key"}[r.below(4)]
	}
	if w.plan.rates && r.hit(700) {
		set["rateLimit"] = fmt.Sprintf("%d/1s", 2+r.below(4))
	}
	if w.plan.responses && kind == durable.Push {
		responding(&r, set)
	}
	if r := draw(w.seed, word("losses"), uint64(channel), uint64(len(w.store.consumers()))); r.hit(300) {
		set["maxLeasesLost"] = strconv.Itoa(r.below(4))
	}
	if len(set) == 0 {
		return ""
	}
	set["v"] = "1"
	record, err := json.Marshal(set)
	if err != nil {
		panic(err) // a map of strings
	}
	return string(record)
}

// mostAttempts is how many attempts of a job the policy of its consumer allows.
func mostAttempts(k durable.Consumer) int {
	p := policies.Of(k.Policy)
	return p.MaxAttempts() + p.LossBudget
}

// checkLost checks that a job is dead because of lost leases when its consumer bears no more (I27). Those
// before a redrive count as well: a death that was decided before it may be stored after it. The store is at
// its turn.
func (w *world) checkLost(rows []durable.Outcome) {
	for _, o := range rows {
		if o.Kind != durable.OutcomeDead || o.Reason != durable.WorkerLost {
			continue
		}
		s, of := w.store, o.ConsumerNo
		if parent := s.parent(of); parent != 0 {
			of = parent // a replay bears what its consumer bears
		}
		k := jobKey{o.ConsumerNo, o.ID}
		lost, stored, record := len(s.lost[k]), s.look().state(k).Reason, s.consumer(of).Policy
		if stored != durable.WorkerLost {
			continue // it was dead already: the first death counts
		}
		if most := policies.Of(record).MaxLost(); lost <= most {
			w.checker.report(o.ID, "I27: consumer %d: dead after %d lost leases, and its policy bears %d", o.ConsumerNo, lost,
				most)
		}
	}
}

// orderingKey is the ordering key of the next message, "" if it has none.
func (w *world) orderingKey(r *chance) string {
	if !w.plan.orders || r.hit(400) {
		return ""
	}
	return []string{"a", "b"}[r.below(2)]
}

// checkOrder checks that the message before m in its key is over for the consumer (I14). No fault
// explains another order: the store has the order, and nothing else decides.
func (w *world) checkOrder(k durable.Consumer, m *durable.Message) {
	of := policies.Of(k.Policy)
	if !of.Ordered {
		return
	}
	s := w.store
	s.mu.Lock()
	p := s.look()
	prev := p.message(k.ChannelNo, s.before(k.ChannelNo, m.ID))
	if prev == nil || !concerns(prev.ID, prev.Audience, k) {
		s.mu.Unlock()
		return
	}
	before := jobKey{k.No, prev.ID}
	state := p.state(before)
	status := state.Status
	s.mu.Unlock()
	if status == durable.Delivered || state.Reason == durable.QueuePurged ||
		w.checker.wasReopened(before, of.OnBlocked != policy.Skip) || of.OnBlocked == policy.Skip && status == durable.Dead {
		return
	}
	w.checker.report(m.ID, "I14: consumer %d got a message of %q, and the one before it, %s, has status %d", k.No,
		m.OrderingKey(), prev.ID, status)
}

// wasReopened reports whether the job was a dead letter once, which nothing behind it had to wait for. Where
// dead letters block, only one that a purge made was that. A redrive may come between the look at it and
// the delivery of the message behind it.
func (c *checker) wasReopened(k jobKey, block bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.trace(k)
	return t.reopened > 0 && (t.purged || !block)
}

// lateAfter is how long a broker that slept, or whose last count came late, may still send requests
// that were counted before.
const lateAfter = 2 * time.Second

// checkRate checks that no window of a rate has more requests than the limit (I15). Each loss of
// Redis may add one limit. Requests of a broker that was stopped between the count and the request
// do not count: nothing can recall them.
func (c *checker) checkRate(l *life, k durable.Consumer) {
	p := policies.Of(k.Policy)
	if p.RateLimit.N == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.w.now()
	if c.disturbed.only(l.no, now-lateAfter, now) || c.lateCounts.only(l.no, now-lateAfter, now) {
		return
	}
	c.arrivals[k.No] = append(c.arrivals[k.No], now)
	from, n := now-p.RateLimit.Per, 0
	for _, at := range c.arrivals[k.No] {
		if at > from {
			n++
		}
	}
	most := p.RateLimit.N
	for _, d := range c.disturbed {
		if d.life == 0 && d.from <= now && d.to >= from {
			most += p.RateLimit.N
		}
	}
	if n > most {
		c.fail(none, "I15: consumer %d got %d requests in %s, and its rate allows %d", k.No, n, p.RateLimit.Per, most)
	}
}

// counted records the call that counts a request anew. A broker sends a request in any case after
// it was counted late three times.
func (c *checker) counted(l *life, asked time.Duration, limits redisq.Limits) {
	if now := c.w.now(); now-asked > limits.Slack/2 {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.lateCounts = append(c.lateCounts, disturbance{from: asked, to: now, life: l.no})
	}
}

// unblock redrives the dead letters that ordered consumers wait for, after the last fault.
func (w *world) unblock() {
	if !w.plan.orders {
		return
	}
	b := w.broker(0)
	if b == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 4*time.Second)
	defer cancel()
	for _, k := range w.store.consumers() {
		if p := policies.Of(k.Policy); p.Ordered && w.store.hasDead(k.No) {
			_, _ = b.service.RedriveAll(ctx, k.No)
		}
	}
}
