package durable_test

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/ident"
)

// A batch of schedules whose time is past takes one transaction, whatever they repeat.
func TestSchedulesThatArePastShareATransaction(t *testing.T) {
	store := openSQLite(t)
	var guards atomic.Int64
	store.Tap(func(text string) {
		if strings.Contains(text, "JOIN nodes n") && strings.Contains(text, "COUNT(*)") {
			guards.Add(1)
		}
	})
	node, err := store.LeaseNode(t.Context(), "test", time.Hour)
	require.NoError(t, err)
	ch, _, err := store.PutChannel(t.Context(), durable.Put{ID: "c", NewToken: "t"})
	require.NoError(t, err)
	ids := ident.NewGenerator(node.No, func() int64 { return time.Now().UnixMilli() })
	due := time.Now().Add(time.Hour).UnixMilli()
	batch := func(past bool) (all []*durable.Scheduled) {
		for i := range 40 {
			s := &durable.Scheduled{Message: durable.Message{ID: ids.Next(), ChannelNo: ch.No, Shape: ch.Shape,
				ContentType: "text/plain"}, DueMs: due, Past: past}
			if i%4 > 0 {
				s.Key = strings.Repeat("k", 1+i)
			}
			all = append(all, s)
		}
		return all
	}
	for _, err := range store.Schedule(t.Context(), node, batch(false)[:20]) {
		require.NoError(t, err)
	}
	guards.Store(0)
	var repeated, past int
	for i, err := range store.Schedule(t.Context(), node, batch(true)) {
		var duplicate *durable.DuplicateError
		switch {
		case i%4 > 0 && i < 20:
			require.ErrorAs(t, err, &duplicate, "%d", i)
			repeated++
		default:
			require.ErrorIs(t, err, durable.ErrPast, "%d", i)
			past++
		}
	}
	require.Equal(t, []int{15, 25}, []int{repeated, past})
	require.EqualValues(t, 1, guards.Load(), "one transaction")
}
