package sampler

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/model/jobs"
)

// A counter answers with the same counts, or fails.
type counter struct {
	away  atomic.Bool
	calls atomic.Int32
}

func (c *counter) CountsOfAll(_ context.Context, consumers []*durable.Consumer) ([]jobs.Count, error) {
	c.calls.Add(1)
	if c.away.Load() {
		return nil, errors.New("away")
	}
	return make([]jobs.Count, len(consumers)), nil
}

func TestASampleIsTakenEachTenSecondsAndTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &counter{}
		s := New(Options{Counter: c, Catalogue: &catalogue.Catalogue{}, NowMs: func() int64 { return time.Now().UnixMilli() },
			Log: slog.New(slog.DiscardHandler)})
		require.Nil(t, s.Latest())
		told := 0
		s.Watch(func(got *Sample) {
			told++
			require.Same(t, s.Latest(), got)
			if told == 2 {
				panic("a watch that fails")
			}
		})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go s.Run(ctx)
		synctest.Wait()
		first := s.Latest()
		require.Equal(t, time.Now().UTC(), first.At)
		time.Sleep(2*Every + time.Second)
		synctest.Wait()
		require.Equal(t, 3, told)
		c.away.Store(true)
		time.Sleep(Every)
		synctest.Wait()
		require.EqualValues(t, 4, c.calls.Load())
		require.Equal(t, 3, told)
		require.Equal(t, first.At.Add(2*Every), s.Latest().At, "the last one stays")
	})
}
