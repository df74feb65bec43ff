//go:build unix

package chaos

import (
	"context"
	"math/rand/v2"
	"os"
	"sync"
	"time"
)

// A victim is a process of this program that is an ordinary client until it is killed. It repeats
// one operation with hardly a pause, so that it dies during that operation.
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
	// victimEvery is the time from one victim to the next. In a short campaign an eighth of its time
	// is enough, so that each kind comes.
	victimEvery = 5 * time.Second
	// victimStart bounds how long a process takes until it works.
	victimStart = 10 * time.Second
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

// sacrifice starts one victim after the other, each kind in turn, and kills it. A victim that was
// idle does not count as a death and is followed by another one. The campaign takes d.
func (r *rig) sacrifice(ctx context.Context, rng *rand.Rand, d time.Duration) {
	for n := 0; ctx.Err() == nil; {
		next := time.Now().Add(min(victimEvery, d/8))
		i := n % len(victims)
		start := time.Now()
		busy, err := r.kill(ctx, i, between(rng, 150*time.Millisecond, 700*time.Millisecond))
		if err != nil {
			r.note("does not start", "%v", err)
			return
		}
		if !busy {
			continue
		}
		r.mu.Lock()
		r.deaths = append(r.deaths, Death{victims[i].kind, "SIGKILL", unspecified, start, time.Now()})
		r.mu.Unlock()
		n++
		pause(ctx, time.Until(next))
	}
}

// kill lets a victim work for d and reports whether it was busy. A pull worker always is; a
// producer is if its journal has a post without an answer.
func (r *rig) kill(ctx context.Context, i int, d time.Duration) (busy bool, err error) {
	c := r.victims[i]
	if err := c.start(); err != nil {
		return false, err
	}
	path := r.journalOf(c.name, c.starts)
	for begun := time.Now(); ctx.Err() == nil && !hasText(path) && time.Since(begun) < victimStart; {
		pause(ctx, 10*time.Millisecond)
	}
	pause(ctx, d)
	if !c.running() {
		r.note("died by itself", "%s: %v", c.name, c.cmd.ProcessState)
	}
	c.kill()
	if i == pullVictim {
		return true, nil
	}
	e := &Evidence{Sent: map[int64]*Sent{}}
	err = e.readProducer(path)
	for _, s := range e.Sent {
		busy = busy || len(s.Tries) < s.Posts
	}
	return busy, err
}

// hasText reports whether a file has been written to: a client's journal is empty until it works.
func hasText(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Size() > 0
}
