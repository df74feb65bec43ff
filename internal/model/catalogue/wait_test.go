package catalogue_test

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
)

// hanging is a store that answers after a minute.
type hanging struct{ catalogue.Source }

func (hanging) Changes(context.Context, int64) (durable.Changes, error) {
	time.Sleep(time.Minute)
	return durable.Changes{Version: 1}, nil
}

func TestRefreshEndsWithItsContextWhileAnotherOneHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := catalogue.New(hanging{}, slog.New(slog.DiscardHandler))
		go func() { _ = c.Refresh(context.Background()) }()
		synctest.Wait()
		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
		defer cancel()
		require.ErrorIs(t, c.Refresh(ctx), context.DeadlineExceeded)
		require.Equal(t, 4*time.Second, time.Since(start))
		time.Sleep(time.Minute)
		require.NoError(t, c.Refresh(context.Background()), "and the next one works")
	})
}
