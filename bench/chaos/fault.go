//go:build unix

package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/penstock-broker/penstock/internal/test/proxy"
)

// A Fault is an injected fault.
type Fault struct {
	Kind       string // as in the verdict
	Detail     string // the exact fault and its target
	Catalogue  string // numbers of the fault catalogue
	Start, End time.Time
	// Repeats: a delivery under way at the fault may be repeated.
	Repeats bool
	// Delays: a job that the broker has given to a pull worker may arrive after the fault.
	Delays bool
	// Unstored: outcomes cannot be stored during the fault, so deliveries stay under way.
	Unstored bool
	// Store: MySQL as a whole is away, so publishes may fail.
	Store   bool
	Broker  int // the only broker affected; unspecified: all of them
	Channel int // the only channel whose push consumers are affected; unspecified: all of them
}

// unspecified stands for no particular broker or channel.
const unspecified = -1

// A blow is a fault about to happen.
type blow struct {
	Fault
	run func(ctx context.Context) error
}

// A kind makes blows. It draws everything random when it makes one, so only the seed decides about
// it.
type kind struct {
	weight int // blows in a round
	make   func(r *rig, rng *rand.Rand) blow
}

// between draws a duration.
func between(rng *rand.Rand, least, most time.Duration) time.Duration {
	return least + time.Duration(rng.Int64N(int64(most-least)+1)).Round(time.Millisecond)
}

// kinds are the kinds of faults that this rig can inject.
func (r *rig) kinds() []kind {
	out := append(processKinds(), storeKinds()...)
	out = append(out, linkKinds(r.redis.kind == standalone)...)
	return append(out, redisKinds(r.redis.kind)...)
}

// A schedule deals blows: in each round every kind as often as its weight, in random order.
type schedule struct {
	seed  uint64
	kinds []kind
	step  uint64
	round []kind
}

// pairEvery is the share of steps with two blows: one step in pairEvery.
const pairEvery = 6

// next returns the blows of one step: one, and in some steps two.
func (s *schedule) next(r *rig) []blow {
	rng := rand.New(rand.NewPCG(s.seed, s.step))
	s.step++
	blows := []blow{s.deal(rng).make(r, rng)}
	if s.step%pairEvery == 0 {
		blows = append(blows, s.deal(rng).make(r, rng))
	}
	return blows
}

func (s *schedule) deal(rng *rand.Rand) kind {
	if len(s.round) == 0 {
		for _, k := range s.kinds {
			for range k.weight {
				s.round = append(s.round, k)
			}
		}
		rng.Shuffle(len(s.round), func(i, j int) { s.round[i], s.round[j] = s.round[j], s.round[i] })
	}
	k := s.round[0]
	s.round = s.round[1:]
	return k
}

// linkKinds break the TCP connections between the parts.
func linkKinds(redisToo bool) []kind {
	toMySQL := kind{3, func(r *rig, rng *rand.Rand) blow {
		n := r.nodes[rng.IntN(len(r.nodes))]
		b := breakLink(n.mysql, rng)
		b.Kind, b.Catalogue, b.Broker, b.Unstored = "broker - MySQL link", "F2 F16 F29", n.no, true
		return b
	}}
	toConsumer := kind{3, func(r *rig, rng *rand.Rand) blow {
		c := rng.IntN(len(r.sinkLinks))
		b := breakLink(r.sinkLinks[c], rng)
		b.Kind, b.Catalogue, b.Channel, b.Repeats = "broker - consumer link", "F7 F29 F33 F37", c, true
		return b
	}}
	fromClients := kind{2, func(r *rig, rng *rand.Rand) blow {
		n := r.nodes[rng.IntN(len(r.nodes))]
		b := breakLink(n.front, rng)
		b.Kind, b.Catalogue, b.Broker, b.Delays = "client - broker link", "F3 F37", n.no, true
		return b
	}}
	out := []kind{toMySQL, toConsumer, fromClients}
	if redisToo {
		out = append(out, kind{4, func(r *rig, rng *rand.Rand) blow {
			n := r.nodes[rng.IntN(len(r.nodes))]
			b := breakLink(n.redis, rng)
			b.Kind, b.Catalogue, b.Broker = "broker - Redis link", "F26 F28 F29", n.no
			return b
		}})
	}
	return out
}

// breakLink draws the fault of a link and its length.
func breakLink(p *proxy.Proxy, rng *rand.Rand) blow {
	d := between(rng, time.Second, 5*time.Second)
	var w proxy.Weather
	var detail string
	cuts := 0
	switch rng.IntN(7) {
	case 0:
		detail, cuts = "cut", 1
	case 1:
		detail, cuts = "cut repeatedly", 2+rng.IntN(6)
	case 2:
		detail, w = "refused", proxy.Weather{Refuse: true}
	case 3:
		detail, w = "silent both ways", proxy.Weather{StallUp: true, StallDown: true}
	case 4:
		detail, w = "silent towards the client", proxy.Weather{StallDown: true}
	case 5:
		w.Delay = between(rng, 20*time.Millisecond, 300*time.Millisecond)
		detail = fmt.Sprintf("%v late", w.Delay)
	case 6:
		detail, w = "answers lost", proxy.Weather{LoseAnswers: true}
	}
	b := blow{Fault: Fault{Detail: detail, Broker: unspecified, Channel: unspecified}}
	b.run = func(ctx context.Context) error {
		if cuts > 0 {
			for range cuts {
				p.Cut()
				pause(ctx, 200*time.Millisecond)
			}
			return nil
		}
		p.Set(w)
		pause(ctx, d)
		if w.StallUp || w.StallDown { // delayed bytes are lost, as in a partition
			p.Cut()
		}
		p.Set(proxy.Weather{})
		return nil
	}
	return b
}

// pause waits for d, or until ctx ends; the caller mends the fault in both cases.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
