package reaper

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/ident"
)

func newBalance(r *rig) *balance {
	return &balance{Reaper: r.Reaper, repaired: map[uint32]time.Time{}}
}

func (r *rig) difference() int64 {
	b, err := r.store.Books(r.t.Context(), r.consumer, ident.ID{}, ident.Max())
	require.NoError(r.t, err)
	return b.Difference()
}

func (r *rig) alerts() (events []durable.Event) {
	due, _, err := r.store.DueAlerts(context.Background(), durable.AlertChannel, 1<<60, 10)
	require.NoError(r.t, err)
	for _, a := range due {
		events = append(events, a.Event)
	}
	return events
}

// An outcome that comes in after the store went back past its message is removed.
func TestOutcomesOfMessagesThatAreGoneLeaveTheBooks(t *testing.T) {
	r := newRig(t, 100, nil)
	ids := r.publish(0, 0)
	r.round()
	r.deliver(ids...)
	for _, kind := range []durable.OutcomeKind{durable.OutcomeDelivered, durable.OutcomeDead, durable.OutcomeRetry} {
		require.NoError(t, r.store.Record(t.Context(), []durable.Outcome{{Kind: kind, ConsumerNo: r.consumer.No,
			ID: ident.AtMillis(ids[1].Millis() + 1 + int64(kind)), Attempts: 1, AtMs: 1}}))
	}
	require.NotZero(t, r.difference())
	b := newBalance(r)
	b.wide = time.Now().Add(time.Hour)
	require.NoError(t, b.round(t.Context()))
	require.Zero(t, r.difference())
	require.Empty(t, r.alerts(), "nothing is lost")
}

// Jobs that were settled and are gone are an alert, and the consumer is scanned again, once.
func TestADifferenceInTheBooksIsAnAlertAndAScan(t *testing.T) {
	r := newRig(t, 100, nil)
	ids := r.publish(0, 0, 0)
	r.round()
	r.deliver(ids...)
	r.round()
	require.NoError(t, r.advanceWatermarks(t.Context()))
	b := newBalance(r)
	require.NoError(t, b.round(t.Context()))
	require.Empty(t, r.alerts())
	r.exec("UPDATE books SET delivered = delivered - 2")
	r.exec("DELETE FROM deliveries")
	for range 2 {
		require.NoError(t, b.round(t.Context()))
		require.Equal(t, []durable.Event{durable.BooksDiffer}, r.alerts())
	}
	require.Empty(t, r.marks()[r.consumer.No])
	r.round()
	require.Equal(t, ids, idsOf(r.claim(10, 1e9)), "the jobs are open again")
	require.Zero(t, r.difference())
}
