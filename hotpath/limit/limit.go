// Package limit derives the limits of a consumer's leases from its policy. It is the only
// place that does, for push, pull and fan-out.
package limit

import (
	"time"

	"github.com/penstock-broker/penstock/internal/model/policy"
	"github.com/penstock-broker/penstock/redisq"
)

// Bounds of the slack, which is the time from a claim to the arrival of its request.
const (
	leastSlack = 50 * time.Millisecond
	mostSlack  = time.Second
)

// Of returns the limits of a policy, and of the present pace of an adaptive consumer. The slack is
// a fiftieth of the window, so it costs two percent of the rate where the window is 2.5 s or longer.
func Of(p *policy.Policy, pace redisq.Rate) redisq.Limits {
	l := redisq.Limits{Concurrency: p.Concurrency, RetryShare: p.RetryShare, Pace: pace}
	if p.RateLimit.N > 0 {
		l.Rate = redisq.Rate{N: p.RateLimit.N, Per: p.RateLimit.Per}
	}
	if l.Rated() {
		l.Slack = min(max(leastSlack, max(l.Rate.Per, l.Pace.Per)/50), mostSlack)
	}
	return l
}

// OfReplay adds the rate of a replay, which has no effect on its consumer, to the limits of the
// consumer.
func OfReplay(l redisq.Limits, record string) redisq.Limits {
	rate, err := policy.ParseRate(record)
	if err != nil || rate.N == 0 { // it was checked when the replay was created
		return l
	}
	l.Own = redisq.Rate{N: rate.N, Per: rate.Per}
	l.Slack = max(l.Slack, min(max(leastSlack, rate.Per/50), mostSlack))
	return l
}
