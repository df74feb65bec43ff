package sampler

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/model/jobs"
)

// A counter answers with the same counts, or fails.
type counter struct {
	err   error
	calls int
}

func (c *counter) Counts(_ context.Context, consumers []uint32) ([]jobs.Count, error) {
	c.calls++
	return make([]jobs.Count, len(consumers)), c.err
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
		require.Equal(t, 3, told)
		c.err = errors.New("away")
		time.Sleep(Every)
		require.Equal(t, 4, c.calls)
		require.Equal(t, 3, told)
		require.Equal(t, first.At.Add(2*Every), s.Latest().At, "the last one stays")
	})
}
