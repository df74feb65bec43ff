package durable_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/test/servers"
	"github.com/penstock-broker/penstock/internal/test/tables"
)

// openThrough opens a second store on the same database behind a proxy.
func openThrough(t *testing.T, dsn string, watched ...string) (*durable.Store, *proxy) {
	cfg, err := mysql.ParseDSN(dsn)
	require.NoError(t, err)
	p := startProxy(t, cfg.Addr, watched...)
	cfg.Addr = p.listener.Addr().String()
	s, err := durable.OpenMySQL(t.Context(), cfg.FormatDSN(), durable.Options{MaxConns: 6})
	require.NoError(t, err)
	return s, p
}

// a result of one insert of one message
type result struct {
	m   *durable.Message
	err error
}

// The repeat of a transaction that may be committed already fails for another reason: what it may have
// stored is still unknown.
func TestAFailedRepeatOfALostCommitLeavesTheOutcomeUnknownOnMySQL(t *testing.T) {
	t.Parallel()
	dsn := tables.MySQL(t)
	direct := openMySQL(t, dsn)
	faulty, p := openThrough(t, dsn, "COMMIT")
	t.Cleanup(func() { require.NoError(t, faulty.Close()) })
	_, _, err := direct.PutChannel(t.Context(), durable.Put{ID: "c"})
	require.NoError(t, err)
	node, err := direct.LeaseNode(t.Context(), "n", time.Hour)
	require.NoError(t, err)
	ids := ident.NewGenerator(node.No, func() int64 { return time.Now().UnixMilli() })
	p.chance.Store(100)
	result := make(chan error, 1)
	go func() {
		result <- faulty.Schedule(context.Background(), node, []*durable.Scheduled{{Message: durable.Message{ID: ids.Next(),
			ChannelNo: 1, ProducerNo: 1, Key: "a"}, DueMs: time.Now().Add(time.Hour).UnixMilli()}})[0]
	}()
	require.Eventually(t, func() bool {
		n := int64(0)
		for i := range p.faults {
			n += p.faults[i].Load()
		}
		return n > 0
	}, time.Minute, time.Millisecond)
	p.stop(t) // no further connection
	require.ErrorIs(t, <-result, durable.ErrOutcomeUnknown)
}

func TestALostAnswerNeverLosesOrDoublesAMessageOnMySQL(t *testing.T) {
	t.Parallel()
	dsn := tables.MySQL(t)
	direct := openMySQL(t, dsn)
	faulty, p := openThrough(t, dsn, "INSERT INTO messages", "INSERT INTO message_keys", "COMMIT", "START TRANSACTION")
	_, _, err := direct.PutChannel(t.Context(), durable.Put{ID: "c"})
	require.NoError(t, err)
	node, err := direct.LeaseNode(t.Context(), "n", time.Hour)
	require.NoError(t, err)
	ids := ident.NewGenerator(node.No, func() int64 { return time.Now().UnixMilli() })
	var audience atomic.Int64
	p.chance.Store(50)

	const workers, rounds = 3, 60
	results := make([][]result, workers)
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for round := range rounds {
				if w == 0 && round%20 == 10 { // knowledge goes stale under way
					url := "http://127.0.0.1/"
					_, _, err := direct.PutConsumer(t.Context(), durable.ConsumerPut{Put: durable.Put{ID: fmt.Sprint("k", round)},
						ChannelID: "c", CallbackURL: &url})
					if err != nil {
						t.Error(err)
					}
				}
				var batch []*durable.Message
				for i := range 1 + round%7 {
					m := &durable.Message{ID: ids.Next(), ChannelNo: 1, ProducerNo: 1, Audience: int(audience.Load()),
						Payload: []byte("p")}
					if round%3 == 1 {
						m.Key = fmt.Sprintf("key %d", (round/3*7+i)%40) // shared by the workers
					}
					if round%3 == 2 {
						m.Priority = i
					}
					batch = append(batch, m)
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				errs := faulty.Insert(ctx, node, batch)
				cancel()
				for i, err := range errs {
					results[w] = append(results[w], result{batch[i], err})
					if errors.Is(err, durable.ErrStale) {
						c, err := direct.Changes(t.Context(), 0)
						if err != nil {
							t.Error(err)
						} else {
							audience.Store(int64(c.Channels[0].Audience))
						}
					}
				}
			}
		})
	}
	wg.Wait()
	require.NoError(t, faulty.Close())
	p.stop(t) // no statement is on its way any more
	time.Sleep(200 * time.Millisecond)

	heads, err := direct.Heads(t.Context(), 1, ident.ID{}, ident.Max(), 100_000)
	require.NoError(t, err)
	stored := map[ident.ID]bool{}
	for _, h := range heads {
		stored[h.ID] = true
	}
	known := map[ident.ID]bool{}
	var ok, stale, duplicate, doubt int
	for _, r := range results {
		for _, r := range r {
			var dup *durable.DuplicateError
			switch {
			case r.err == nil:
				ok++
				require.True(t, stored[r.m.ID], "a message that was answered is stored")
				if r.m.Key != "" {
					id, err := direct.MessageByKey(t.Context(), 1, r.m.Key)
					require.NoError(t, err)
					require.Equal(t, r.m.ID, id)
				}
			case errors.Is(r.err, durable.ErrOutcomeUnknown):
				doubt++
			case errors.As(r.err, &dup):
				duplicate++
				require.True(t, stored[dup.ID])
				require.False(t, stored[r.m.ID])
			default:
				if errors.Is(r.err, durable.ErrStale) {
					stale++
				}
				require.Falsef(t, stored[r.m.ID], "what was refused is not stored: %v", r.err)
			}
			known[r.m.ID] = true
		}
	}
	for id := range stored {
		require.True(t, known[id], "nothing is stored that nobody inserted")
	}
	for i := range p.faults {
		require.NotZero(t, p.faults[i].Load(), "every kind of fault has happened")
	}
	t.Logf("%d stored, %d stale, %d duplicates, %d in doubt; faults %d %d %d %d", ok, stale, duplicate, doubt,
		p.faults[0].Load(), p.faults[1].Load(), p.faults[2].Load(), p.faults[3].Load())
	require.NotZero(t, ok)
	require.NotZero(t, stale)
	require.NotZero(t, duplicate)
	require.Zero(t, doubt, "there is time enough to find out")
}

func TestOutcomesAreRecordedThroughABadConnectionOnMySQL(t *testing.T) {
	dsn := tables.MySQL(t)
	direct := openMySQL(t, dsn)
	faulty, p := openThrough(t, dsn, "INSERT INTO deliveries", "\nINSERT INTO", "\nDELETE FROM", "COMMIT",
		"START TRANSACTION")
	p.chance.Store(8)
	var id ident.ID
	for round := range 60 {
		id = id.Next()
		now := int64(1000 + round)
		require.NoError(t, faulty.Record(t.Context(), []durable.Outcome{
			{Kind: durable.OutcomeDelivered, ConsumerNo: 1, ID: id, Attempts: 1, AtMs: now},
			{Kind: durable.OutcomeDelivered, ConsumerNo: 2, ID: id, Attempts: 1, AtMs: now},
		}))
		require.NoError(t, faulty.Record(t.Context(), []durable.Outcome{
			{Kind: durable.OutcomeRetry, ConsumerNo: 3, ID: id, Attempts: 1, AtMs: now, NextMs: now},
			{Kind: durable.OutcomeDead, ConsumerNo: 4, ID: id, Attempts: 1, AtMs: now},
			{Kind: durable.OutcomeDelivered, ConsumerNo: 5, ID: id, Attempts: 1, AtMs: now, Tracked: true},
		}))
		for consumer, want := range map[uint32]durable.JobStatus{
			1: durable.Delivered, 2: durable.Delivered, 3: durable.Open, 4: durable.Dead, 5: durable.Delivered,
		} {
			states, err := direct.JobStates(t.Context(), consumer, []ident.ID{id})
			require.NoError(t, err)
			require.Equal(t, want, states[id].Status)
		}
	}
	require.NoError(t, faulty.Close())
	p.stop(t)
	require.NotZero(t, p.faults[cutAnswer].Load())
}

func TestWhatWasAnsweredSurvivesAKilledServerOnMySQL(t *testing.T) {
	server := servers.StartMySQL(t)
	s := openMySQL(t, server.DSN())
	_, _, err := s.PutChannel(t.Context(), durable.Put{ID: "c"})
	require.NoError(t, err)
	node, err := s.LeaseNode(t.Context(), "n", time.Hour)
	require.NoError(t, err)
	ids := ident.NewGenerator(node.No, func() int64 { return time.Now().UnixMilli() })

	var stop atomic.Bool
	var wg sync.WaitGroup
	results := make([][]result, 3)
	var stored [3]atomic.Int64
	for w := range results {
		wg.Go(func() {
			for !stop.Load() {
				m := &durable.Message{ID: ids.Next(), ChannelNo: 1, ProducerNo: 1, Payload: make([]byte, 1000)}
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
				results[w] = append(results[w], result{m, s.Insert(ctx, node, []*durable.Message{m})[0]})
				cancel()
				if results[w][len(results[w])-1].err != nil {
					time.Sleep(10 * time.Millisecond)
					continue
				}
				stored[w].Add(1)
			}
		})
	}
	goOn := func() { // every worker stores something
		for w := range stored {
			n := stored[w].Load()
			require.Eventually(t, func() bool { return stored[w].Load() > n+5 }, time.Minute, 5*time.Millisecond)
		}
	}
	for range 2 {
		goOn()
		server.Kill()
		server.Restart()
	}
	goOn()
	stop.Store(true)
	wg.Wait()

	ok := 0
	for _, r := range results {
		for _, r := range r {
			got, err := s.Messages(t.Context(), 1, []ident.ID{r.m.ID})
			require.NoError(t, err)
			switch {
			case r.err == nil:
				ok++
				require.Len(t, got, 1, "a message that was answered is stored")
			case !errors.Is(r.err, durable.ErrOutcomeUnknown):
				require.Emptyf(t, got, "what was refused is not stored: %v", r.err)
			}
		}
	}
	require.NotZero(t, ok)
}

// Where the server allows the user two connections, the two pools of a store share them: one that
// always has work keeps no message from being stored.
func TestFaultOfTooFewConnectionsOfTheMySQLUserKeepsNoInsertOut(t *testing.T) {
	server := servers.StartMySQL(t)
	dsn := server.UserDSN("few")
	admin, err := sql.Open("mysql", server.RootDSN())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, admin.Close()) })
	s := openMySQL(t, dsn)
	_, _, err = s.PutChannel(t.Context(), durable.Put{ID: "c"})
	require.NoError(t, err)
	node, err := s.LeaseNode(t.Context(), "n", time.Hour)
	require.NoError(t, err)
	ids := ident.NewGenerator(node.No, func() int64 { return time.Now().UnixMilli() })
	_, err = admin.Exec("ALTER USER few WITH MAX_USER_CONNECTIONS 2")
	require.NoError(t, err)

	stop := make(chan struct{})
	var busy sync.WaitGroup
	for range 6 {
		busy.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					_, _ = s.NowMs(t.Context())
				}
			}
		})
	}
	defer busy.Wait()
	defer close(stop)
	for range 3 {
		require.Eventually(t, func() bool {
			return s.Insert(t.Context(), node, []*durable.Message{{ID: ids.Next(), ChannelNo: 1, ProducerNo: 1}})[0] == nil
		}, 3*time.Minute, 10*time.Millisecond)
	}
}

func TestAFrozenServerIsAnsweredAtTheDeadlineOnMySQL(t *testing.T) {
	server := servers.StartMySQL(t)
	s := openMySQL(t, server.DSN())
	_, _, err := s.PutChannel(t.Context(), durable.Put{ID: "c"})
	require.NoError(t, err)
	node, err := s.LeaseNode(t.Context(), "n", time.Hour)
	require.NoError(t, err)
	ids := ident.NewGenerator(node.No, func() int64 { return time.Now().UnixMilli() })
	require.NoError(t, s.Insert(t.Context(), node, []*durable.Message{{ID: ids.Next(), ChannelNo: 1, ProducerNo: 1}})[0],
		"a connection is open")
	m := &durable.Message{ID: ids.Next(), ChannelNo: 1, ProducerNo: 1}

	server.Pause()
	begun := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	err = s.Insert(ctx, node, []*durable.Message{m})[0]
	server.Resume()
	require.ErrorIs(t, err, durable.ErrOutcomeUnknown)
	require.Less(t, time.Since(begun), 20*time.Second, "the server stands still for as long as we wait")

	// Asking again with the same message finds out.
	require.Eventually(t, func() bool {
		err := s.Insert(t.Context(), node, []*durable.Message{m})[0]
		got, e := s.Messages(t.Context(), 1, []ident.ID{m.ID})
		require.NoError(t, e)
		return (err == nil) == (len(got) == 1)
	}, 10*time.Second, 50*time.Millisecond)
}
