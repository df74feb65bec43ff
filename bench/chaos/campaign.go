//go:build unix

package chaos

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"time"
)

const (
	// redriveEvery is the interval between redrives of the dead letters of a consumer.
	redriveEvery = 20 * time.Second
	// superviseEvery is the interval of the checks for processes that died by themselves.
	superviseEvery = 200 * time.Millisecond
	// drainPatience is how long a drain without progress goes on until it counts as stuck. It is
	// longer than the last retry, the longest lease, and a consumer's whole list of attempts that
	// end by time-out.
	drainPatience = 90 * time.Second
	drainTick     = time.Second
)

// run runs one campaign on a built rig: load and faults for d, with no faults in the last part of
// it, then the drain. It returns the first error of the rig itself.
func (r *rig) run(ctx context.Context, c *Config, d time.Duration, say func(format string, args ...any)) error {
	load, stop := context.WithCancel(ctx)
	defer stop()
	rest := calm(d, c.Neighbours)
	storm, stopStorm := context.WithTimeout(ctx, d-rest)
	defer stopStorm()
	background, stopBackground := context.WithCancel(ctx)
	defer stopBackground()
	var wg sync.WaitGroup
	wg.Go(func() { r.supervise(background) })
	wg.Go(func() { r.govern(background, load) })
	if c.Deaths > 0 {
		wg.Go(func() { r.sacrifice(load, rand.New(rand.NewPCG(c.Seed, 1<<62)), d) })
	}
	wg.Go(func() { r.redriveNowAndThen(load, rand.New(rand.NewPCG(c.Seed, 1<<63))) })
	wg.Go(func() { r.replay(load) })
	if r.neighbours != nil {
		wg.Go(func() { r.watchMemory(load) })
	}
	upgraded := make(chan error, 1)
	go func() { upgraded <- r.upgrade(ctx, (d-rest)/3, c.Every, say) }()
	err := errors.Join(r.inject(ctx, storm, c, say), <-upgraded)
	say("faults have ended; the load continues for a while")
	if err == nil {
		r.endAttack(ctx, say)
		pause(ctx, rest)
	}
	stop()
	for _, c := range []*guarded{r.producer, r.mortals} {
		if c != nil {
			c.finish(finishWithin + 2*postTimeout)
		}
	}
	if err == nil {
		err = r.drain(ctx, say)
	}
	r.puller.finish(2 * pullTimeout) // their journals are evidence
	r.sinks.finish(2 * pullTimeout)
	if err == nil {
		r.comeToRest(ctx, say)
		err = ctx.Err()
	}
	stopBackground()
	wg.Wait()
	return err
}

// calm is how long the load, and the deaths of clients, continue after the last fault of a campaign
// of d. A broker that a fault restarts no longer has what clients left behind. After an attack of
// neighbours it is long enough to see that publishing is healthy again, in a short campaign half of it.
func calm(d time.Duration, neighbours int) time.Duration {
	rest := min(d/6, 30*time.Second)
	if neighbours > 0 {
		rest = max(rest, min(d/2, 2*servedWithin))
	}
	return rest
}

// inject deals faults until storm ends; the last ones are waited for, unless ctx ends.
func (r *rig) inject(ctx, storm context.Context, c *Config, say func(format string, args ...any)) error {
	s := &schedule{seed: c.Seed, kinds: r.kinds()}
	pause(storm, c.Every)
	for storm.Err() == nil {
		next := time.Now().Add(c.Every)
		blows := s.next(r)
		errs := make([]error, len(blows))
		var wg sync.WaitGroup
		for i, b := range blows {
			say("%s %s", b.Kind, b.Detail)
			wg.Go(func() { errs[i] = r.strike(ctx, b) })
		}
		wg.Wait()
		if err := errors.Join(errs...); err != nil {
			return err
		}
		pause(storm, time.Until(next))
	}
	return ctx.Err()
}

// strike injects one fault and records when it began and ended.
func (r *rig) strike(ctx context.Context, b blow) error {
	f := b.Fault
	f.Start = time.Now()
	err := b.run(ctx)
	f.End = time.Now()
	r.mu.Lock()
	r.faults = append(r.faults, f)
	r.mu.Unlock()
	if err != nil {
		return fmt.Errorf("%s %s: %w", f.Kind, f.Detail, err)
	}
	return nil
}

// supervise starts processes that died without a fault, and records their deaths.
func (r *rig) supervise(ctx context.Context) {
	tick := time.NewTicker(superviseEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for _, n := range r.nodes {
			if !n.mu.TryLock() {
				continue
			}
			if !n.running() { // its exit is evidence
				if err := n.up(ctx); err != nil && ctx.Err() == nil {
					r.note("does not start", "%v", err)
				}
			}
			n.mu.Unlock()
		}
		for _, c := range r.roles() {
			if !c.mu.TryLock() {
				continue
			}
			if !c.running() && !c.finished {
				r.note("died by itself", "%s: %v", c.name, c.cmd.ProcessState)
				if err := c.start(); err != nil {
					r.note("does not start", "%v", err)
				}
			}
			c.mu.Unlock()
		}
	}
}

// redriveNowAndThen plays an operator who redrives dead letters.
func (r *rig) redriveNowAndThen(ctx context.Context, rng *rand.Rand) {
	for {
		pause(ctx, redriveEvery)
		if ctx.Err() != nil {
			return
		}
		r.redrive(ctx, "http://"+r.plan.Brokers[rng.IntN(len(r.plan.Brokers))], rng.IntN(len(r.plan.Consumers)))
	}
}

// A progress is the least that was left to do so far.
type progress struct{ open, known int64 }

func newProgress() *progress { return &progress{math.MaxInt64, math.MaxInt64} }

// made reports whether fewer jobs are open than ever before, or, with equally many, fewer are known
// to Redis. The number known to Redis alone shows nothing, since it grows after a loss.
func (p *progress) made(open, known int64) bool {
	if open > p.open || open == p.open && known >= p.known {
		return false
	}
	*p = progress{open, known}
	return true
}

// drain waits until no job is open, or until there has been no progress for drainPatience. The
// checker reports the remaining jobs.
func (r *rig) drain(ctx context.Context, say func(format string, args ...any)) error {
	p := newProgress()
	since, redriven := time.Now(), time.Now()
	for {
		if time.Since(redriven) > redriveReplies {
			redriven = time.Now()
			r.redriveReplies(ctx)
		}
		open, err := r.open(ctx)
		if err != nil {
			return err
		}
		known, err := r.redis.waiting(ctx)
		if err != nil {
			return err
		}
		open += r.journalled(ctx) // each is a message to come
		if open == 0 && known == 0 {
			return nil
		}
		if p.made(open, known) {
			since = time.Now()
		}
		if time.Since(since) > drainPatience {
			say("%d jobs stay open in the store and %d known to Redis", open, known)
			return nil
		}
		say("draining: %d jobs open, %d known to Redis", open, known)
		pause(ctx, drainTick)
		if err := ctx.Err(); err != nil {
			return err
		}
	}
}
