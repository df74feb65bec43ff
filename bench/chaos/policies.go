//go:build unix

package chaos

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

// The consumers of policyChannel each have a policy, and the checker its promise: rated a rate,
// ordered an order of each key, mortal a tombstone from which the rig revives it, and pausing is
// paused and resumed again and again.
const (
	policyChannel = "chaos-policies"
	ratedID       = "rated"
	orderedID     = "ordered"
	mortalID      = "mortal"
	pausingID     = "pausing"
	filteredID    = "filtered" // of journalChannel

	// rateLimit and rateWindow are the rate of rated. Arrivals are checked in windows shorter by
	// rateSlack: on a busy machine a request may wait that long for the endpoint.
	rateLimit  = 60
	rateWindow = time.Second
	rateSlack  = 200 * time.Millisecond

	// orderingKeys is the number of ordering keys of policyChannel.
	orderingKeys = 40

	// pauseLasts and pauseEvery are the times of a pause and between two of them. holdsWithin is
	// when a pause holds on every broker that reaches the store.
	pauseLasts  = 4 * time.Second
	pauseEvery  = 3 * time.Second
	holdsWithin = 2 * time.Second

	reviveEvery = 3 * time.Second
)

// policies are the fields in the PUT of these consumers.
var policies = map[string]map[string]string{
	ratedID:     {"rateLimit": fmt.Sprintf("%d/%s", rateLimit, rateWindow)},
	orderedID:   {"ordered": "true", "maxRetries": "1000", "backoff": "constant:200ms"},
	filteredID:  {"filter": "priority == 0"},
	answeringID: {"responses": "callback"},
	laterID:     {"responses": "callback", "async": "true"},
	mortalID:    {"tombstoneAfter": "8", "tombstoneWindow": "10s", "maxRetries": "1000", "backoff": "constant:200ms"},
}

// attempts is how often a job of the consumer is sent at most.
func (c *consumer) attempts() int {
	if policies[c.ID]["maxRetries"] != "" {
		return 1001
	}
	return maxAttempts
}

// orderingKey is the ordering key of a message, empty for none.
func (p *plan) orderingKey(channel int, seq int64) string {
	if p.Channels[channel] != policyChannel {
		return ""
	}
	return fmt.Sprintf("k%d", seq%orderingKeys)
}

// numbered returns the number of the consumer with that ID, -1 if the plan has none.
func (p *plan) numbered(id string) int {
	return slices.IndexFunc(p.Consumers, func(k consumer) bool { return k.ID == id })
}

// A Pause is a time in which a consumer was paused: from the answer to the request until the
// request that ended it.
type Pause struct{ From, To time.Time }

// govern pauses and resumes one consumer until load ends, and revives another one until ctx ends.
func (r *rig) govern(ctx, load context.Context) {
	revived := time.Now()
	for turn := 0; ctx.Err() == nil; turn++ {
		if load.Err() == nil && r.change(ctx, pausingID, "pause", turn) {
			from := time.Now()
			pause(load, pauseLasts)
			r.mu.Lock()
			r.pauses = append(r.pauses, Pause{from, time.Now()})
			r.mu.Unlock()
		}
		for ctx.Err() == nil && !r.change(ctx, pausingID, "resume", turn) {
			pause(ctx, 200*time.Millisecond)
			turn++
		}
		if time.Since(revived) > reviveEvery && r.change(ctx, mortalID, "revive", turn) {
			revived = time.Now()
		}
		pause(ctx, pauseEvery)
	}
}

// change asks a broker to change the state of a consumer, and reports whether it did.
func (r *rig) change(ctx context.Context, id, verb string, turn int) bool {
	k := r.plan.numbered(id)
	status, err := send(ctx, http.MethodPost, "http://"+r.plan.Brokers[turn%len(r.plan.Brokers)]+r.plan.path(k)+
		"/"+verb, nil)
	return err == nil && status == http.StatusOK
}

// policies checks what the policies of consumers promise.
func (c *checker) policies() {
	arrivals := map[int][]*Arrival{}
	for i := range c.e.Arrivals {
		a := &c.e.Arrivals[i]
		arrivals[a.Consumer] = append(arrivals[a.Consumer], a)
	}
	c.rate(arrivals[c.e.Plan.numbered(ratedID)])
	c.order(c.e.Plan.numbered(orderedID))
	c.pauses(arrivals[c.e.Plan.numbered(pausingID)])
}

// rate counts arrivals in each window. A Redis that may have lost its state allows as many again, and
// a broker that stood still may write what it was about to write.
func (c *checker) rate(arrivals []*Arrival) {
	losses := c.windows(func(f *Fault) bool {
		return strings.Contains(f.Kind, "Redis") ||
			strings.Contains(f.Kind, "Sentinel")
	})
	delays := c.windows(func(f *Fault) bool { return f.Delays })
	first := 0
	for i, a := range arrivals {
		for !arrivals[first].At.After(a.At.Add(rateSlack - rateWindow)) {
			first++
		}
		n, from := i-first+1, arrivals[first].At
		c.v.MostInAWindow = max(c.v.MostInAWindow, int64(n))
		switch {
		case delays.covers(from, a.At):
		case n > 2*rateLimit, n > rateLimit && !losses.covers(from, a.At):
			c.v.broken("rates exceeded", "%d requests from %s to %s, %d are allowed in %s", n, from.Format(clock),
				a.At.Format(clock), rateLimit, rateWindow)
			return // one is enough to look at
		}
	}
}

// order compares messages of one key: if the first was acknowledged before the second was sent,
// the second arrives after the first has been taken.
func (c *checker) order(k int) {
	keys := map[string][]*Sent{}
	for _, s := range c.e.Sent {
		if key := c.e.Plan.orderingKey(s.Channel, s.Seq); key != "" && verdictOf(s) == acked {
			keys[key] = append(keys[key], s)
		}
	}
	for key, sent := range keys {
		slices.SortFunc(sent, func(a, b *Sent) int { return begin(a).Compare(begin(b)) })
		for i := 1; i < len(sent); i++ {
			before, after := sent[i-1], sent[i]
			if !answeredAt(before).Before(begin(after)) {
				continue // they were under way together
			}
			c.v.Ordered++
			later := c.deliveries[jobKey{after.Seq, k}]
			taken := c.deliveries[jobKey{before.Seq, k}]
			t := slices.IndexFunc(taken, func(a *Arrival) bool { return a.Promised })
			if len(later) > 0 && (t < 0 || later[0].At.Before(taken[t].At)) {
				c.v.broken("out of order", "key %s: message %d came at %s, before message %d was taken", key, after.Seq,
					later[0].At.Format(clock), before.Seq)
			}
		}
	}
}

// begin is when a message was posted first, and answeredAt when all its posts had been answered.
func begin(s *Sent) time.Time {
	first := time.Time{}
	for _, t := range s.Tries {
		if first.IsZero() || t.Sent.Before(first) {
			first = t.Sent
		}
	}
	return first
}

func answeredAt(s *Sent) (last time.Time) {
	if len(s.Tries) < s.Posts { // some posts have no answer
		return time.Unix(1<<40, 0)
	}
	for _, t := range s.Tries {
		if t.Answered.After(last) {
			last = t.Answered
		}
	}
	return last
}

// pauses looks for arrivals at a paused consumer. A broker that stands still, or that the store
// does not reach, cannot know of the pause.
func (c *checker) pauses(arrivals []*Arrival) {
	away := c.windows(func(f *Fault) bool { return f.Delays || f.Unstored || f.Store })
	for _, p := range c.e.Pauses {
		from := p.From.Add(holdsWithin)
		if !from.Before(p.To) || away.covers(p.From, p.To) {
			continue
		}
		c.v.Pauses++
		for _, a := range arrivals {
			if a.At.After(from) && a.At.Before(p.To) {
				c.v.broken("pauses not kept", "message %d came at %s from %s, paused from %s to %s", a.Seq, a.At.Format(clock),
					a.Broker, p.From.Format(clock), p.To.Format(clock))
			}
		}
	}
}
