package outcome

import (
	"context"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/tool/guard"
)

// panicRecorder cannot store outcomes of one consumer.
type panicRecorder struct{ stored chan uint32 }

func (r panicRecorder) Record(_ context.Context, rows []durable.Outcome) error {
	if slices.ContainsFunc(rows, func(o durable.Outcome) bool { return o.ConsumerNo == 13 }) {
		panic("boom")
	}
	r.stored <- rows[0].ConsumerNo
	return nil
}

func TestAPanicOfARecordFailsItsOutcomesAndNoOthers(t *testing.T) {
	store := panicRecorder{make(chan uint32, 1)}
	o, stop := runOutcomes(t, store, slowAcks(nil))
	require.ErrorIs(t, o.Store(t.Context(), Entry{Outcome: durable.Outcome{ConsumerNo: 13}}), guard.ErrPanic)
	require.NoError(t, o.Store(t.Context(), Entry{Outcome: durable.Outcome{ConsumerNo: 1}}))
	require.EqualValues(t, 1, <-store.stored)
	stop()
	require.Equal(t, slots, o.Room())
}
