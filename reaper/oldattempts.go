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

// An attemptScan is a look at the attempts of a channel.
type attemptScan struct {
	began    time.Time
	position int // of the consumer whose attempts it has reached
	job      durable.OldAttempts
	over     bool
}

// oldAttempts removes the failed attempts of jobs of a channel that are over and past their own age, for a turn. more:
// there may be others. It looks at a channel now and then, or after a tenth of that age.
func (p *purger) oldAttempts(ctx context.Context, ch *catalogue.Channel) (more bool, err error) {
	age := ch.Intake.Keeping.AttemptRetention.Or(p.AttemptRetention)
	if age == 0 || ch.Deleted {
		delete(p.looked, ch.No)
		return false, nil
	}
	age = max(age, p.leastKept())
	scan := p.looked[ch.No]
	if scan != nil && scan.over && time.Since(scan.began) < min(attemptsAgain, age/10) {
		return false, nil
	}
	if scan == nil || scan.over {
		before := p.Cluster.PastMs() - age.Milliseconds()
		scan = &attemptScan{began: time.Now(), job: durable.OldAttempts{ChannelNo: ch.No, BeforeMs: before,
			Through: ident.AtMillis(before), Limit: attemptPage}} // an attempt is younger than its message
		p.looked[ch.No] = scan
	}
	began := time.Now()
	for _, k := range ch.Consumers {
		if k.Deleted() || k.Position < scan.position {
			continue
		}
		if k.Position > scan.position {
			scan.position, scan.job.After = k.Position, ident.ID{}
		}
		scan.job.ConsumerNo = k.No
		for scan.job.After.Compare(scan.job.Through) < 0 {
			start := time.Now()
			last, removed, err := p.removeAttempts(ctx, scan.job)
			p.attempts.Add(float64(removed))
			if err != nil {
				return false, err
			}
			scan.job.After = last
			if last.Compare(scan.job.Through) < 0 {
				if err := pause(ctx, purgePause*time.Since(start)); err != nil {
					return false, err
				}
			}
			if time.Since(began) >= p.turn {
				return true, nil
			}
		}
	}
	scan.over = true
	return false, nil
}

func (p *purger) removeAttempts(ctx context.Context, job durable.OldAttempts) (ident.ID, int64, error) {
	ctx, cancel := context.WithTimeout(ctx, purgeTimeout)
	defer cancel()
	return p.Store.RemoveOldAttempts(ctx, job)
}
