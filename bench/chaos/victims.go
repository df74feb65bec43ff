//go:build unix

package chaos

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"
)

// A victim is a process of this program that is an ordinary client until it is killed.
// It does one thing, without a pause worth mentioning, so that it is in the middle of it.
type victim struct{ kind, role string }

// The victims, by number.
const (
	singleVictim = iota
	batchVictim
	pullVictim
)

var victims = []victim{
	singleVictim: {"producer, by SIGKILL", "chaos-victim-producer"},
	batchVictim:  {"batch producer, by SIGKILL", "chaos-victim-batch"},
	pullVictim:   {"pull worker, by SIGKILL", "chaos-victim-puller"},
}

const (
	// victimEvery is the time from one victim to the next.
	victimEvery = 5 * time.Second
	// hurrying is how many posts a victim has under way.
	hurrying = 3
)

// firstOf is the sequence number that a process of a role begins after.
func firstOf(role string, start int) int64 {
	for i, v := range victims {
		if v.role == role {
			return firstVictim + int64(i)*victimKind + int64(start)*victimIncarnation
		}
	}
	if role == "chaos-mortals" {
		return firstMortal + int64(start)*incarnation
	}
	return int64(start) * incarnation
}

// hurry works with hardly a pause until ctx ends.
func (p *producer) hurry(ctx context.Context, work func(context.Context, *rand.Rand)) {
	var wg sync.WaitGroup
	for i := range hurrying {
		rng := rand.New(rand.NewPCG(p.plan.Seed, uint64(p.seq.Load())+uint64(i)))
		wg.Go(func() {
			for ctx.Err() == nil {
				work(ctx, rng)
				time.Sleep(time.Duration(rng.IntN(10)) * time.Millisecond)
			}
		})
	}
	wg.Wait()
	p.Close()
}

// A sacrificed is the death of a victim, if it was in the middle of something: a pull
// worker always is.
type sacrificed struct {
	Death
	publishes bool
	first     int64 // its sequence numbers come after it
}

// sacrifice starts one victim after the other, each kind in turn, and kills it.
func (r *rig) sacrifice(ctx context.Context, rng *rand.Rand) {
	for n := 0; ctx.Err() == nil; n++ {
		next := time.Now().Add(victimEvery)
		c, start := r.victims[n%len(victims)], time.Now()
		if err := c.start(); err != nil {
			r.note("does not start", "%v", err)
			return
		}
		pause(ctx, between(rng, 150*time.Millisecond, 700*time.Millisecond))
		if !c.running() {
			r.note("died by itself", "%s: %v", c.name, c.cmd.ProcessState)
		}
		c.kill()
		r.mu.Lock()
		r.deaths = append(r.deaths, sacrificed{Death{victims[n%len(victims)].kind, "SIGKILL", nobody, start, time.Now()}, n%len(victims) != pullVictim, firstOf(c.name, c.starts)})
		r.mu.Unlock()
		pause(ctx, time.Until(next))
	}
}
