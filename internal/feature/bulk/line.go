package bulk

import (
	"context"
	"crypto/rand"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/tool/guard"
	"github.com/penstock-broker/penstock/internal/tool/intake"
	"github.com/penstock-broker/penstock/internal/tool/share"
)

const (
	// fetchesAtOnce and expansionsAtOnce are the bulks that one broker works on. Others wait, as those
	// whose channel is paused do without a place.
	fetchesAtOnce, expansionsAtOnce = 16, 16
	// fetchYoung is the age from which a file that comes slower than fastFile, bytes a second, gives its
	// place to another producer. A file that comes fast is never interrupted: it would begin anew.
	fetchYoung, fastFile = 10 * time.Second, 64 << 10
	// turn is how long a bulk is expanded before its place goes to another producer that waits.
	turn = 5 * time.Second
	// crowdedAgain is the wait of a bulk whose file came slowly while others waited.
	crowdedAgain = 30 * time.Second
	// queuesAtOnce bounds the producers that one round looks at. The next round goes on behind them.
	queuesAtOnce = 64
)

var (
	// errYield means that the place of an expansion is given to another producer.
	errYield = errors.New("bulk: others wait for the place")
	// errCrowded is that of a fetch.
	errCrowded = errors.New("bulk: the file comes slowly, and others wait")
	errSlow    = errors.New("the file came too slowly")
)

// A line is the bulks that have one kind of work, a queue for each producer. Producers have their turns.
type line struct {
	places *share.Bound
	last   durable.BulkQueue // that had its turn; only the claim loop uses it
}

func newLines() []*line {
	return []*line{
		{share.New(share.Options{Name: "bulk_fetches", Most: fetchesAtOnce, Young: fetchYoung, Fast: fastFile, Others: true}),
			durable.BulkQueue{State: durable.BulkFetching}},
		{share.New(share.Options{Name: "bulk_expansions", Most: expansionsAtOnce, Young: turn, Others: true}),
			durable.BulkQueue{State: durable.BulkRunning}},
	}
}

// Bounds returns what producers share.
func (b *Bulks) Bounds() (all []*share.Bound) {
	for _, l := range b.lines {
		all = append(all, l.places)
	}
	return all
}

// A place is that of one bulk.
type place struct {
	permit *share.Permit
	ended  atomic.Bool
	stop   atomic.Pointer[context.CancelFunc] // of a fetch
}

// end makes the owner give the bulk back: an expansion between two steps, a fetch at once.
func (p *place) end() {
	p.ended.Store(true)
	if stop := p.stop.Load(); stop != nil {
		(*stop)()
	}
}

// claimAll begins the work on bulks while there are any, and places for their producers.
func (b *Bulks) claimAll(ctx context.Context, works *sync.WaitGroup) error {
	for _, l := range b.lines {
		more := true
		for more && ctx.Err() == nil {
			var err error
			if more, err = b.claimRound(ctx, works, l); err != nil {
				return err
			}
		}
	}
	return nil
}

// claimRound gives each producer with bulks that are due at most one place. It reports whether any got
// one.
func (b *Bulks) claimRound(ctx context.Context, works *sync.WaitGroup, l *line) (more bool, err error) {
	for range queuesAtOnce {
		q, due, err := b.Store.NextBulkQueue(ctx, l.last, b.Cluster.PastMs())
		if err != nil {
			return more, err
		}
		if l.last = q; q.ProducerNo == 0 {
			return more, nil // the next round begins anew
		}
		if !due {
			continue
		}
		began, err := b.begin(ctx, works, l, q)
		if err != nil {
			return more, err
		}
		more = more || began
	}
	return more, nil
}

// begin works on the next bulk of a queue, if its producer has a place for that.
func (b *Bulks) begin(ctx context.Context, works *sync.WaitGroup, l *line, q durable.BulkQueue) (began bool,
	err error) {
	at := &place{}
	at.permit = l.places.Permit(share.Producer(q.ProducerNo), at.end)
	if !at.permit.Take(1) {
		at.permit.Close()
		return false, nil
	}
	var owner [16]byte
	_, _ = rand.Read(owner[:]) // never fails, says its documentation
	bulk, err := b.Store.ClaimBulk(ctx, owner, q)
	if err != nil || bulk == nil {
		at.permit.Close()
		return false, err
	}
	works.Go(func() {
		defer func() {
			at.permit.Close()
			b.Wake()
		}()
		b.active.Inc()
		defer b.active.Dec()
		_ = guard.Do("owner of a bulk", func() error { // its lease ends
			b.work(ctx, bulk, at)
			return nil
		})
	})
	return true, nil
}

// watch ends a download whose place ends, or that comes slower than any body may. The download calls
// the returned function at its end, which returns why it was ended.
func (b *Bulks) watch(ctx context.Context, at *place, got *atomic.Int64) (context.Context, func() error) {
	ctx, stop := context.WithCancelCause(ctx)
	end := context.CancelFunc(func() { stop(errCrowded) })
	at.stop.Store(&end)
	if at.ended.Load() {
		end()
	}
	var watching sync.WaitGroup
	began := time.Now()
	watching.Go(func() {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			if time.Since(began) > intake.Patience+time.Duration(got.Load())*time.Second/intake.MinRate {
				stop(errSlow)
			}
		}
	})
	return ctx, func() error {
		stop(context.Canceled)
		watching.Wait()
		return context.Cause(ctx)
	}
}
