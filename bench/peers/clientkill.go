package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"
)

// A killRun is what became of the jobs of a client whose worker was killed.
type killRun struct {
	Client    string
	Acked     int
	Kills     int
	Lost      int     // acknowledged, and never done
	Repeated  int     // done once more
	Recovered float64 // s from the last kill to the last job
	Failure   string  `json:",omitempty"`
}

const (
	kills     = 3
	killLease = 5 // seconds: lease, lockDuration and visibility_timeout, so that a lost job comes back soon
	// Nothing comes back any more after the lease and two of Celery's looks for jobs, every 10 s.
	killQuiet  = 27 * time.Second
	killWithin = 3 * time.Minute
)

func (x *killRun) line() string {
	if x.Failure != "" {
		return "FAILED: " + x.Failure
	}
	return fmt.Sprintf("%d acknowledged, %d kills, %d lost, %d repeated, the last one done %.1f s after the last kill",
		x.Acked, x.Kills, x.Lost, x.Repeated, x.Recovered)
}

// killAll kills the workers of all clients, at the same time: what is counted is jobs, not time, and
// most of it is waiting for leases to end.
func killAll(ctx context.Context, o *clientOptions, stores *clientStores) []*killRun {
	ctx, cancel := context.WithTimeout(ctx, killWithin)
	defer cancel()
	runs := make([]*killRun, len(o.subjects))
	var all sync.WaitGroup
	for i, c := range o.subjects {
		runs[i] = &killRun{Client: c.name}
		all.Go(func() {
			if err := runs[i].run(ctx, o, stores, c); err != nil {
				runs[i].Failure = err.Error()
			}
		})
	}
	all.Wait()
	return runs
}

func (x *killRun) run(ctx context.Context, o *clientOptions, stores *clientStores, c *clientSubject) (err error) {
	j, err := newJobs(o, stores, c, killLease)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, j.Close()) }()
	const kind = "killed"
	told, err := j.produce(ctx, publishWithin, "publish", kind, strconv.Itoa(o.killed), "50")
	if err != nil {
		return err
	}
	x.Acked = len(told.Acked)
	if err := j.start(); err != nil {
		return err
	}
	for x.Kills < kills {
		if _, err := j.await(ctx, kind, (x.Kills+1)*x.Acked/(kills+1), killWithin); err != nil {
			return err
		}
		if err := j.kill(); err != nil {
			return err
		}
		x.Kills++
		if err := j.start(); err != nil {
			return err
		}
	}
	return x.rest(ctx, j, kind, told.Acked)
}

// rest waits until nothing is done any more, and counts.
func (x *killRun) rest(ctx context.Context, j *jobs, kind string, acked []int) error {
	killed, last, count := time.Now(), time.Now(), 0
	for time.Since(last) < killQuiet {
		done, err := readDone(j.file, kind)
		if err != nil {
			return err
		}
		if len(done) > count {
			count, last = len(done), time.Now()
		}
		x.Lost, x.Repeated = reconcile(acked, done)
		x.Recovered = last.Sub(killed).Seconds()
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-j.worker.exited:
			return fmt.Errorf("the worker ended: %w\n%s", j.worker.err, j.worker.lastWords())
		case <-time.After(10 * pollPause):
		}
	}
	return nil
}
