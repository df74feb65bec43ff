package durable_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/test/tables"
)

// bulkOf stores a bulk that runs.
func bulkOf(t *testing.T, s *durable.Store, channelNo uint32, id ident.ID) *durable.Bulk {
	t.Helper()
	b := &durable.Bulk{ChannelNo: channelNo, ProducerNo: 1, State: durable.BulkRunning, Spec: []byte("{}")}
	b.ID = id
	require.NoError(t, s.CreateBulk(t.Context(), b, []byte("body")))
	held, err := s.ClaimBulk(t.Context(), [16]byte{1}, durable.BulkQueue{State: durable.BulkRunning, ProducerNo: 1})
	require.NoError(t, err)
	require.NotNil(t, held)
	return held
}

// An owner that stands still inside the transaction of a step loses its connection, and with it
// its locks: another one goes on within 20 s, and nothing of the step is stored.
func TestMySQLEndsTheLocksOfAnOwnerThatStandsStill(t *testing.T) {
	t.Parallel()
	dsn := tables.MySQL(t)
	first, second := openMySQL(t, dsn), openMySQL(t, dsn)
	ch, _, err := first.PutChannel(t.Context(), durable.Put{ID: "c"})
	require.NoError(t, err)
	node, err := first.LeaseNode(t.Context(), "n", time.Hour)
	require.NoError(t, err)
	now, err := first.NowMs(t.Context())
	require.NoError(t, err)
	skew := now - time.Now().UnixMilli()
	ids := ident.NewGenerator(node.No, func() int64 { return time.Now().UnixMilli() + skew })
	b := bulkOf(t, first, ch.No, ids.Next())
	message := func(key, payload string) *durable.Message {
		return &durable.Message{ID: ids.Next(), ChannelNo: ch.No, ProducerNo: 1, Key: key, Payload: []byte(payload)}
	}
	eventually := func(try func() bool) {
		t.Helper()
		for range 400 {
			if try() {
				return
			}
			time.Sleep(50 * time.Millisecond)
		}
		t.Fatal("it never comes")
	}
	eventually(func() bool {
		return first.Insert(t.Context(), node, []*durable.Message{message("taken", "x")})[0] == nil
	})

	still, goOn, ended := make(chan struct{}, 10), make(chan struct{}), make(chan error, 1)
	go func() {
		for {
			step := &durable.BulkStep{By: b.BulkOwner, To: durable.BulkPosition{Row: 2},
				Messages: []*durable.Message{message("fresh", "1"), message("taken", "2")}, Rows: []int64{1, 2},
				Reason: func(error) string { // the messages are inserted, and the transaction is open
					still <- struct{}{}
					<-goOn
					return "taken"
				}}
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			err := first.StepBulk(ctx, node, step)
			cancel()
			if !isStale(err) {
				ended <- err
				return
			}
		}
	}()
	<-still
	began := time.Now()
	var next *durable.Bulk
	eventually(func() bool {
		next, err = second.ClaimBulk(t.Context(), [16]byte{2}, durable.BulkQueue{State: durable.BulkRunning, ProducerNo: 1})
		require.NoError(t, err)
		return next != nil
	})
	require.Less(t, time.Since(began), 20*time.Second)
	t.Logf("replaced after %v", time.Since(began))
	eventually(func() bool {
		step := &durable.BulkStep{By: next.BulkOwner, To: durable.BulkPosition{Row: 1},
			Messages: []*durable.Message{message("fresh", "mine")}, Rows: []int64{1}, Reason: func(err error) string {
				return fmt.Sprint(err)
			}}
		err := second.StepBulk(t.Context(), node, step)
		if isStale(err) {
			return false
		}
		require.NoError(t, err)
		require.NoError(t, step.Results[0], "the ID is not taken by the first owner")
		return true
	})
	close(goOn)
	require.ErrorIs(t, <-ended, durable.ErrBulkLost)
	got, err := first.BulkByID(t.Context(), b.ID)
	require.NoError(t, err)
	require.Equal(t, [2]int64{1, 1}, [2]int64{got.At.Row, got.Published})
}

func isStale(err error) bool { return err != nil && errors.Is(err, durable.ErrStale) }

// Lost answers, also to COMMIT, neither lose nor double a row of a bulk, and each row is counted once.
func TestALostAnswerNeverLosesOrDoublesARowOfABulkOnMySQL(t *testing.T) {
	t.Parallel()
	dsn := tables.MySQL(t)
	direct := openMySQL(t, dsn)
	faulty, p := openThrough(t, dsn, "INSERT INTO messages", "INSERT INTO bulk_steps", "UPDATE bulks", "COMMIT",
		"START TRANSACTION")
	ch, _, err := direct.PutChannel(t.Context(), durable.Put{ID: "c"})
	require.NoError(t, err)
	node, err := direct.LeaseNode(t.Context(), "n", time.Hour)
	require.NoError(t, err)
	ids := ident.NewGenerator(node.No, func() int64 { return time.Now().UnixMilli() })
	b := bulkOf(t, direct, ch.No, ids.Next())
	p.chance.Store(30)
	const rounds, size = 60, 5
	for round := int64(0); round < rounds; {
		step := &durable.BulkStep{By: b.BulkOwner, From: durable.BulkPosition{Row: round * size},
			To: durable.BulkPosition{Row: (round + 1) * size}, Reason: func(err error) string { return fmt.Sprint(err) }}
		first := ids.Block(size)
		for i := range size {
			key := ""
			if i%2 == 0 {
				key = fmt.Sprintf("m-%d-%d", round, i)
			}
			step.Messages = append(step.Messages, &durable.Message{ID: first.After(i), ChannelNo: ch.No, ProducerNo: 1, Key: key,
				Payload: []byte("p")})
			step.Rows = append(step.Rows, step.From.Row+int64(i)+1)
		}
		switch err := faulty.StepBulk(t.Context(), node, step); {
		case err == nil:
			for _, e := range step.Results {
				require.NoError(t, e)
			}
			round++
		case errors.Is(err, durable.ErrBulkLost): // the checkpoint tells
			now, err := direct.BulkByID(t.Context(), b.ID)
			require.NoError(t, err)
			require.Contains(t, []int64{round * size, (round + 1) * size}, now.At.Row)
			round = now.At.Row / size
		}
	}
	got, err := direct.BulkByID(t.Context(), b.ID)
	require.NoError(t, err)
	require.Equal(t, [3]int64{rounds * size, rounds * size, 0}, [3]int64{got.At.Row, got.Published, got.Duplicates})
	list, err := direct.ListMessages(t.Context(), ch.No, ident.ID{}, 10*rounds*size)
	require.NoError(t, err)
	require.Len(t, list, rounds*size)
	require.NoError(t, faulty.Close())
	p.stop(t)
}

// The last step of a bulk ends the right of its owner. An owner that gets no answer to its COMMIT learns
// all the same that it has stored the step, since nobody else can have.
func TestALostAnswerToTheLastStepOfABulkIsFoundOnMySQL(t *testing.T) {
	t.Parallel()
	dsn := tables.MySQL(t)
	direct := openMySQL(t, dsn)
	faulty, p := openThrough(t, dsn, "COMMIT")
	ch, _, err := direct.PutChannel(t.Context(), durable.Put{ID: "c"})
	require.NoError(t, err)
	node, err := direct.LeaseNode(t.Context(), "n", time.Hour)
	require.NoError(t, err)
	ids := ident.NewGenerator(node.No, func() int64 { return time.Now().UnixMilli() })
	var steps []*durable.BulkStep
	for range 30 {
		b := bulkOf(t, direct, ch.No, ids.Next())
		steps = append(steps, &durable.BulkStep{By: b.BulkOwner, To: durable.BulkPosition{Row: 1}, Rows: []int64{1},
			Last:   true,
			Reason: func(err error) string { return fmt.Sprint(err) }})
	}
	p.chance.Store(50)
	for _, step := range steps {
		step.Messages = []*durable.Message{{ID: ids.Next(), ChannelNo: ch.No, ProducerNo: 1, Payload: []byte("p")}}
		err := faulty.StepBulk(t.Context(), node, step)
		if errors.Is(err, durable.ErrStale) {
			continue // the ID was too old after several lost answers
		}
		require.NoError(t, err)
		require.NoError(t, step.Results[0])
		require.ErrorIs(t, direct.StepBulk(t.Context(), node, step), durable.ErrBulkLost, "a repeated call stores nothing")
	}
	require.NoError(t, faulty.Close())
	p.stop(t)
}
