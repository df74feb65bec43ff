package durable_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/test/tables"
)

// Lost answers, also to COMMIT, neither lose nor double the message of a schedule, with two brokers
// that send the same schedules.
func TestALostAnswerNeverLosesOrDoublesAScheduledMessageOnMySQL(t *testing.T) {
	t.Parallel()
	dsn := tables.MySQL(t)
	direct := openMySQL(t, dsn)
	faulty, p := openThrough(t, dsn, "INSERT INTO messages", "UPDATE scheduled", "INSERT INTO scheduled", "COMMIT",
		"START TRANSACTION")
	ch, _, err := direct.PutChannel(t.Context(), durable.Put{ID: "c"})
	require.NoError(t, err)
	node, err := direct.LeaseNode(t.Context(), "n", time.Hour)
	require.NoError(t, err)
	ids := ident.NewGenerator(node.No, func() int64 { return time.Now().UnixMilli() })
	p.chance.Store(30)

	const rounds, size = 25, 8
	var wg sync.WaitGroup
	stored := make([]map[ident.ID]bool, 2)
	begin := time.Now().UnixMilli()
	for round := range rounds {
		var plans []*durable.Scheduled
		for i := range size {
			plans = append(plans, &durable.Scheduled{Message: durable.Message{ID: ids.Next(), ChannelNo: ch.No, ProducerNo: 1,
				Key: fmt.Sprintf("m-%d-%d", round, i), Payload: []byte("p")}, DueMs: begin})
		}
		eventuallyStored(t, faulty, node, plans)
	}
	for w := range 2 {
		stored[w] = map[ident.ID]bool{}
		wg.Go(func() {
			for {
				due, err := direct.DueSchedules(t.Context(), begin, 5+10*w)
				if err != nil || len(due) == 0 {
					if err != nil {
						t.Error(err)
					}
					return
				}
				var from []ident.ID
				for _, d := range due {
					from = append(from, d.ID)
				}
				rows, err := direct.ScheduledRows(t.Context(), from)
				if err != nil {
					t.Error(err)
					return
				}
				var msgs []*durable.Message
				for _, s := range rows {
					m := s.Message
					m.ID, m.Occurrence = ids.Next(), &durable.Occurrence{Of: s.ID, No: s.No, NextNo: s.No + 1, Reserved: true}
					msgs = append(msgs, &m)
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				for i, err := range faulty.Insert(ctx, node, msgs) {
					if err == nil {
						stored[w][msgs[i].ID] = true
					} else if !errors.Is(err, durable.ErrMoved) && !errors.Is(err, durable.ErrStale) &&
						!errors.Is(err, durable.ErrOutcomeUnknown) {
						t.Logf("%v", err)
					}
				}
				cancel()
			}
		})
	}
	wg.Wait()
	require.NoError(t, faulty.Close())
	p.stop(t)
	time.Sleep(200 * time.Millisecond)

	heads, err := direct.Heads(t.Context(), ch.No, ident.ID{}, ident.Max(), 100_000)
	require.NoError(t, err)
	require.Len(t, heads, rounds*size, "each schedule is one message")
	is := map[ident.ID]bool{}
	for _, h := range heads {
		is[h.ID] = true
	}
	for w := range stored {
		for id := range stored[w] {
			require.True(t, is[id], "a message that was reported is stored")
		}
	}
	for round := range rounds {
		for i := range size {
			id, err := direct.MessageByKey(t.Context(), ch.No, fmt.Sprintf("m-%d-%d", round, i))
			require.NoError(t, err)
			require.True(t, is[id])
		}
	}
	t.Logf("%d and %d of %d messages were reported as stored", len(stored[0]), len(stored[1]), len(heads))
}

func eventuallyStored(t *testing.T, s *durable.Store, node durable.NodeLease, plans []*durable.Scheduled) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; {
		failed := 0
		for _, err := range s.Schedule(t.Context(), node, plans) {
			if err != nil {
				failed++
			}
		}
		if failed == 0 {
			return
		}
		require.True(t, time.Now().Before(deadline))
	}
}
