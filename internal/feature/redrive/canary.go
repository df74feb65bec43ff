package redrive

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/cause"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/model/policy"
)

// stages are the numbers of jobs that the stages of a canary open, before the one that opens all.
var stages = [...]int64{1, 10, 100}

// StageOf is the name of the present stage for clients: how many jobs it opens, or "all".
func StageOf(of *durable.Redriving) string {
	if of.Canary && of.Stage < len(stages) {
		return strconv.FormatInt(stages[of.Stage], 10)
	}
	return "all"
}

// room returns how many letters the redrive may open before it has to wait, or is at its limit.
func room(of *durable.Redriving) int64 {
	most := int64(math.MaxInt64)
	if of.Most > 0 {
		most = max(of.Most-of.Redriven, 0)
	}
	if of.Canary && of.Stage < len(stages) {
		most = min(most, stages[of.Stage]-of.StageJobs)
	}
	return most
}

// full reports whether a stage of a canary has all its jobs.
func full(of *durable.Redriving) bool {
	return of.Canary && of.Stage < len(stages) && of.StageJobs >= stages[of.Stage]
}

// exhausted ends a redrive that has no further letters, once the last stage of its canary is evaluated.
func (r *Runner) exhausted(ctx context.Context, of *durable.Redriving) (goes bool, err error) {
	if of.Canary && of.Stage < len(stages) && of.StageJobs > 0 {
		k := r.o.Catalogue.ConsumerByNo(of.ConsumerNo)
		if k == nil {
			return false, nil
		}
		return r.evaluate(ctx, k, of)
	}
	cursor := of.Cursor
	return false, r.change(ctx, of, func(now *durable.Redriving) bool {
		if now.State != durable.RedriveRunning || now.Cursor != cursor {
			return false
		}
		now.State, now.Reason, now.Matched, now.Approximate = durable.RedriveDone, "", now.Redriven, false
		return true
	})
}

// evaluate ends a stage, if it can be told by now, and returns whether the next one may begin.
func (r *Runner) evaluate(ctx context.Context, k *durable.Consumer, of *durable.Redriving) (goes bool, err error) {
	again, late := of.StageAgain, false
	if of.StageOver < of.StageJobs {
		if r.o.Cluster.NowMs()-of.StageMs < timeout(r.o.Policies.Of(k.Policy), k).Milliseconds() {
			return false, nil
		}
		failing, tried, err := r.failing(ctx, of)
		if err != nil || 2*(of.StageOver+tried) < of.StageJobs { // by then nothing is known
			return false, err
		}
		again, late = again+failing, true
	}
	stage, jobs := of.Stage, of.StageJobs
	stop := 2*again > jobs
	err = r.change(ctx, of, func(now *durable.Redriving) bool {
		if now.State != durable.RedriveRunning || now.Stage != stage || now.StageJobs != jobs {
			return false
		}
		if stop {
			now.State = durable.RedriveStopped
			now.Reason = fmt.Sprintf("%d of %d jobs of the stage %s failed by the same cause again", again, jobs,
				StageOf(now))
			return true
		}
		now.Stage, now.StageJobs, now.StageOver, now.StageAgain = stage+1, 0, 0, 0
		return true
	})
	if stop && err == nil {
		r.o.Log.Warn("a redrive was stopped by its canary", "consumer", k.No, "redrive", of.ID(), "reason", of.Reason,
			"late", late)
	}
	return !stop, err
}

// timeout is how long a stage may wait for its jobs.
func timeout(p *policy.Policy, k *durable.Consumer) time.Duration {
	if k.Type == durable.Pull && p.Lease > 0 {
		return p.Lease
	}
	return p.Timeout
}

// failing returns how many open jobs of the stage were tried, and how many of them failed by the cause of
// their letters again.
func (r *Runner) failing(ctx context.Context, of *durable.Redriving) (again, tried int64, err error) {
	var opened []durable.RedrivenJob
	for after := (ident.ID{}); ; {
		part, err := r.o.Store.RedrivenJobs(ctx, of, after, page)
		if err != nil {
			return 0, 0, err
		}
		for _, j := range part {
			if j.Stage == of.Stage {
				opened = append(opened, j)
			}
		}
		if len(part) < page {
			break
		}
		after = part[len(part)-1].ID
	}
	states, err := r.states(ctx, of, opened)
	for _, j := range opened {
		if s := states[j.ID]; s.Status == durable.Open && s.Attempts > 0 {
			tried++
			if cause.OfAttempt(s.StatusCode, s.Error) == j.Fingerprint {
				again++
			}
		}
	}
	return again, tried, err
}

// endNames are the states that end a redrive by itself, as the metric names them. A stopped one may go on.
var endNames = map[durable.RedrivingState]string{durable.RedriveDone: "done", durable.RedriveStopped: "stopped"}

// change changes the row, and what the caller knows of it.
func (r *Runner) change(ctx context.Context, of *durable.Redriving, f func(now *durable.Redriving) bool) error {
	changed := false
	after, err := r.o.Store.ChangeRedriving(ctx, of.ConsumerNo, of.No, func(now *durable.Redriving) bool {
		changed = f(now)
		return changed
	})
	if err != nil {
		return err
	}
	if state := endNames[after.State]; changed && state != "" {
		r.ended.WithLabelValues(state).Inc()
	}
	if of.State != after.State && after.State == durable.RedriveDone {
		r.o.Log.Info("a redrive is done", "consumer", after.ConsumerNo, "redrive", after.ID(), "jobs", after.Redriven)
	}
	*of = after
	return nil
}

// A budget spreads the steps of a redrive over time.
type budget struct {
	at   time.Time
	left float64 // jobs
}

// take returns how many jobs, of those that are wanted, may be opened now.
func (b *budget) take(rate string, wanted int64) int64 {
	r, err := policy.ParseRate(rate)
	if err != nil || r.N == 0 {
		b.at = time.Time{}
		return wanted
	}
	now := time.Now()
	perSecond := float64(r.N) / r.Per.Seconds()
	if b.at.IsZero() { // a broker that takes a redrive over begins with one job
		b.left = 1
	} else {
		b.left = min(b.left+now.Sub(b.at).Seconds()*perSecond, max(perSecond, 1))
	}
	b.at = now
	return min(wanted, int64(b.left))
}

// spend counts opened jobs.
func (b *budget) spend(n int) { b.left -= float64(n) }
