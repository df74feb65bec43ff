package bulk

import (
	"context"
	"errors"
	"io"
	"sync/atomic"
	"time"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/hotpath/publish"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/tool/share"
)

// stepRows and stepBytes bound the rows of one step. A small step is short, so publishes of clients
// wait little for the disk and for places in the admission.
const (
	stepRows  = 128
	stepBytes = 256 << 10
)

// longPace is a wait for the rate of a bulk in which its place is given to others.
const longPace = 2 * time.Second

// expand publishes the rows behind the checkpoint. nil: the bulk is done.
func (b *Bulks) expand(ctx context.Context, bulk *durable.Bulk, spec *Spec, at *place, shown *atomic.Int64) error {
	rows, err := b.maker(ctx, bulk, spec)
	if err != nil {
		return err
	}
	src, err := b.open(ctx, bulk, spec, b.Publisher.Longest())
	if err != nil {
		return err
	}
	defer src.rows.release()
	src.maker = rows
	rate, err := rateOf(&spec.BulkRequest)
	if err != nil {
		return err
	}
	most, pace := perStep(rate, stepRows)
	speed, commits := bulk.Speed, b.Publisher.Commits()
	have := 0 // places in the publish rates that no row has yet
	for {
		began := time.Now()
		step, err := b.gather(ctx, src, bulk, most, &have)
		if err != nil {
			return err
		}
		n := int(step.To.Row - step.From.Row)
		wait := pace(n)
		step.PauseMs, step.Speed = wait.Milliseconds(), speed
		stored := time.Now()
		if err := b.Publisher.StoreBulk(ctx, share.Producer(bulk.ProducerNo), b.Store, step, bulk.Bytes); err != nil {
			return err
		}
		shown.Store(time.Now().UnixMilli())
		b.count(step)
		at.permit.Moved(n)
		if step.Last {
			b.Log.Info("a bulk is done", "bulk", bulk.ID.String(), "rows", step.To.Row)
			b.ended.WithLabelValues("done").Inc()
			return nil
		}
		switch {
		case wait > longPace:
			return errPaced
		case at.ended.Load():
			return errYield
		}
		if err := sleep(ctx, max(wait-time.Since(stored), courtesy(b.Publisher.Commits()-commits,
			time.Since(stored)))); err != nil {
			return err
		}
		commits = b.Publisher.Commits()
		speed = average(speed, float64(n)/time.Since(began).Seconds())
	}
}

// placesAtOnce is how many places in the publish rates a bulk takes at a time: those left at its end are lost.
const placesAtOnce = 8

// places takes up to placesAtOnce places for the next rows in the publish rates. It waits for the first one, unless a
// step is begun: 0 ends that. After a long wait it fails with a ratedError: the place of the bulk is given to others.
func (b *Bulks) places(ctx context.Context, bulk *durable.Bulk, begun bool) (int, error) {
	for {
		n, wait := b.Publisher.Pace(ctx, bulk.ChannelNo, bulk.ProducerNo, placesAtOnce)
		switch {
		case n > 0 || begun:
			return n, nil
		case wait > longPace:
			return 0, &ratedError{wait}
		}
		if err := sleep(ctx, max(wait, leastRated)); err != nil {
			return 0, err
		}
	}
}

// leastRated is the shortest wait for a place in a publish rate.
const leastRated = 10 * time.Millisecond

// A ratedError says that the publish rates have no place for the next rows of a bulk for so long.
type ratedError struct{ wait time.Duration }

func (*ratedError) Error() string { return "bulk: the publish rate is used up" }

// average follows the rows a second of the last steps.
func average(speed, now float64) float64 {
	if speed == 0 {
		return now
	}
	return speed + (now-speed)/16
}

// courtesy is the pause after a step that took a time, while clients of this broker had transactions
// of their own: most of the store is theirs. Without clients there is none.
func courtesy(commits int64, took time.Duration) time.Duration {
	if commits == 0 {
		return 0
	}
	return min(2*took, 250*time.Millisecond)
}

func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// maker returns the maker of a bulk's messages. The copy of the catalogue may be older than the bulk.
func (b *Bulks) maker(ctx context.Context, bulk *durable.Bulk, spec *Spec) (*publish.Drafter, error) {
	created := bulk.ID.Millis()
	rows, err := b.Publisher.Rows(bulk.ChannelNo, bulk.ProducerNo, spec.Defaults, created)
	if errors.Is(err, catalogue.ErrUnknownChannel) || errors.Is(err, catalogue.ErrUnknownProducer) {
		if err := b.Catalogue.Refresh(ctx); err != nil {
			return nil, err
		}
		rows, err = b.Publisher.Rows(bulk.ChannelNo, bulk.ProducerNo, spec.Defaults, created)
	}
	switch {
	case errors.Is(err, catalogue.ErrUnknownProducer):
		err = failedFetch("the producer was deleted")
	case errors.Is(err, catalogue.ErrUnknownChannel):
		err = failedFetch("the channel was deleted")
	}
	return rows, err
}

// gather reads the rows of the next step.
func (b *Bulks) gather(ctx context.Context, src *source, bulk *durable.Bulk, most int, have *int) (
	step *durable.BulkStep, err error) {
	step = &durable.BulkStep{By: bulk.BulkOwner, From: src.at, Reason: reason}
	var later []int64
	bytes := 0
	for n := 0; n < most && bytes < stepBytes; n++ {
		if err := src.more(ctx); errors.Is(err, io.EOF) { // no place is waited for behind the last row
			step.Last = true
			break
		} else if err != nil {
			return nil, err
		}
		if *have == 0 {
			if *have, err = b.places(ctx, bulk, n > 0); err != nil {
				return nil, err
			}
			if *have == 0 {
				break // the next step waits
			}
		}
		row, bad, err := src.next(ctx)
		if err != nil {
			return nil, err
		}
		switch {
		case bad != nil:
			step.Bad = append(step.Bad, durable.BadRow{Row: src.at.Row, Reason: reason(bad)})
			bytes += 256
		case row.Later != nil:
			*have--
			step.Later, later = append(step.Later, row.Later), append(later, src.at.Row)
			bytes += row.Later.Bytes()
		default:
			*have--
			step.Messages, step.Rows = append(step.Messages, row.Message), append(step.Rows, src.at.Row)
			bytes += row.Message.Bytes()
		}
	}
	step.Rows = append(step.Rows, later...)
	step.To = src.at
	return step, nil
}

// count counts the rows of a step in the metrics.
func (b *Bulks) count(step *durable.BulkStep) {
	published, duplicates := 0, 0
	for _, err := range step.Results {
		switch {
		case err == nil:
			published++
		case errors.Is(err, durable.ErrDuplicate):
			duplicates++
		}
	}
	b.rows.WithLabelValues("published").Add(float64(published))
	b.rows.WithLabelValues("duplicate").Add(float64(duplicates))
	b.rows.WithLabelValues("rejected").Add(float64(len(step.Results) - published - duplicates + len(step.Bad)))
}
