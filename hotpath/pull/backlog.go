package pull

import (
	"context"
	"strconv"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/tool/intake"
	"github.com/penstock-broker/penstock/redisq"
)

// A why is the code of what keeps jobs from a worker, "" where nothing does.
type why string

// The codes of an empty Result.
const (
	whyPaused  why = "paused"  // the consumer is paused, dead or gone
	whyLimited why = "limited" // by its rate or its concurrency
	whyLoading why = "loading" // there are due jobs that no claim gets yet, as a rule because Redis does not have them
)

const (
	whyHeader     = "X-Broker-Why"
	backlogHeader = "X-Broker-Backlog"
	// loadingRetry is Retry-After, seconds, while jobs are being loaded.
	loadingRetry = 1
	// countedAtOnce bounds the messages that one count of the backlog reads in the store, and
	// countWithin its time: jobs that are leased wait for it.
	countedAtOnce = 1000
	countWithin   = 500 * time.Millisecond
	unknown       = -1
)

// A remainder is what a claim leaves behind.
type remainder struct {
	due int // jobs that are due and not leased; unknown: nothing says so for certain
	why why // of an empty Result
}

// appendJSON appends the member Why, where there is a reason.
func (w why) appendJSON(b []byte) []byte {
	if w == "" {
		return b
	}
	b = append(b, `,"Why":"`...)
	return append(append(b, w...), '"')
}

// tell sets the headers of an empty answer, where there is a reason.
func (w why) tell(rc *fasthttp.RequestCtx) {
	if w == "" {
		return
	}
	rc.Response.Header.Set(whyHeader, string(w))
	if w == whyLoading {
		rc.Response.Header.Set("Retry-After", strconv.Itoa(loadingRetry))
	}
}

// remaining returns what a claim of the consumer itself has left. Redis knows it where it has every
// job. Where a scan of the store has not ended yet, the store counts, up to a bound. Of jobs outside
// the window, of an ordered consumer and beside a replay no number is certain.
func (p *Puller) remaining(ctx context.Context, k *durable.Consumer, got claimed) remainder {
	left := p.left(ctx, k, got.own)
	switch {
	case left.why != "":
	case got.claim.Limited != redisq.NoLimit:
		left.why = whyLimited // the jobs of the replay
	case got.behind || got.claim.Ready > 0 || len(got.jobs) == 0 && p.loads(ctx, k):
		left.why = whyLoading // jobs that this claim has not come to
	}
	if got.behind {
		left.due = unknown
	}
	return left
}

func (p *Puller) left(ctx context.Context, k *durable.Consumer, c redisq.Claim) remainder {
	left := remainder{due: c.Ready}
	if p.held(k.No) {
		left.why = whyPaused
		now, err := p.claimNone(ctx, k)
		if err != nil {
			return remainder{unknown, whyPaused}
		}
		left.due, c = now.Ready, now
	}
	switch {
	case c.Spilled:
		left.due = unknown
	case !c.Whole:
		left.due = p.counted(ctx, k, c.Ready)
	}
	if left.why == "" {
		switch {
		case c.Limited != redisq.NoLimit:
			left.why = whyLimited
		case left.due != 0 && !c.Whole:
			left.why = whyLoading
		}
	}
	if p.catalogue.ReplayOf(k.No) != nil || p.policies.Of(k.Policy).Ordered {
		left.due = unknown
	}
	return left
}

// loads reports whether the consumer has a replay whose jobs are still to come, while Redis has none of
// them, or have just come.
func (p *Puller) loads(ctx context.Context, k *durable.Consumer) bool {
	g := p.catalogue.ReplayOf(k.No)
	if g == nil || g.Held() || g.Replay.State != durable.ReplayRunning {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, countWithin)
	defer cancel()
	stats, err := p.queue.Stats(ctx, g.No)
	return err == nil && (stats.Ready > 0 || stats.Delayed+stats.Leased == 0)
}

// counted returns how many jobs of the consumer are due, as the store and Redis know it together.
// Redis may have a part of them only, at least ready.
func (p *Puller) counted(ctx context.Context, k *durable.Consumer, ready int) int {
	ctx, cancel := context.WithTimeout(ctx, countWithin)
	defer cancel()
	stored, err := p.store.Backlog(ctx, *k, countedAtOnce)
	if err != nil || stored.More || stored.Open >= countedAtOnce {
		return unknown
	}
	stats, err := p.queue.Stats(ctx, k.No)
	if err != nil {
		return unknown
	}
	return max(ready, stored.Open-stats.Leased-stats.Delayed)
}

// whyEmpty returns why a list of queued jobs was empty, as far as that is still so.
func (p *Puller) whyEmpty(ctx context.Context, k *durable.Consumer) remainder {
	c, err := p.claimNone(ctx, k)
	if err != nil {
		return remainder{due: unknown}
	}
	left := p.left(ctx, k, c)
	if left.why == "" && left.due <= 0 && p.loads(ctx, k) {
		left.why = whyLoading
	}
	return left
}

// claimNone is a claim of no job.
func (p *Puller) claimNone(ctx context.Context, k *durable.Consumer) (redisq.Claim, error) {
	ctx, cancel := context.WithTimeout(ctx, intake.AnswerWithin)
	defer cancel()
	return p.queue.Claim(ctx, k.No, 0, p.visible, redisq.Limits{})
}
