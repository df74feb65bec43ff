package reaper

import (
	"context"
	"time"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/model/ident"
)

const (
	// attemptPage is the number of attempts that one transaction examines.
	attemptPage = 500
	// attemptsAgain is the interval at which the attempts of a channel are looked at.
	attemptsAgain = time.Hour
)

// oldAttempts removes the failed attempts of jobs of a channel that are over and past their own age. It looks at
// a channel now and then, or after a tenth of that age.
func (p *purger) oldAttempts(ctx context.Context, ch *catalogue.Channel) error {
	age := ch.Intake.Keeping.AttemptRetention.Or(p.AttemptRetention)
	if age == 0 || ch.Deleted {
		delete(p.looked, ch.No)
		return nil
	}
	age = max(age, p.leastKept())
	if began, ok := p.looked[ch.No]; ok && time.Since(began) < min(attemptsAgain, age/10) {
		return nil
	}
	began := time.Now()
	job := durable.OldAttempts{ChannelNo: ch.No, BeforeMs: p.Cluster.PastMs() - age.Milliseconds(), Limit: attemptPage}
	job.Through = ident.AtMillis(job.BeforeMs) // an attempt is younger than its message
	for _, k := range ch.Consumers {
		if k.Deleted() {
			continue
		}
		job.ConsumerNo, job.After = k.No, ident.ID{}
		for job.After.Compare(job.Through) < 0 {
			start := time.Now()
			last, removed, err := p.removeAttempts(ctx, job)
			p.attempts.Add(float64(removed))
			if err != nil {
				return err
			}
			if job.After = last; last.Compare(job.Through) < 0 {
				if err := pause(ctx, purgePause*time.Since(start)); err != nil {
					return err
				}
			}
		}
	}
	p.looked[ch.No] = began
	return nil
}

func (p *purger) removeAttempts(ctx context.Context, job durable.OldAttempts) (ident.ID, int64, error) {
	ctx, cancel := context.WithTimeout(ctx, purgeTimeout)
	defer cancel()
	return p.Store.RemoveOldAttempts(ctx, job)
}
