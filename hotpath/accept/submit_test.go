package accept

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/problem"
	"github.com/penstock-broker/penstock/internal/test/memstore"
	"github.com/penstock-broker/penstock/internal/tool/share"
)

func text(payloads ...string) []*durable.Message {
	msgs := make([]*durable.Message, len(payloads))
	for i, p := range payloads {
		msgs[i] = &durable.Message{ChannelNo: 1, Payload: []byte(p)}
	}
	return msgs
}

// What a caller without HTTP needs: messages in, an outcome for each in their order, and the
// messages have their IDs.
func TestSubmitReturnsAnOutcomeForEachMessage(t *testing.T) {
	f := &memstore.Store{OnInsert: func(_ int, batch []*durable.Message) []error {
		out := make([]error, len(batch))
		for i, m := range batch {
			if string(m.Payload) == "twice" {
				out[i] = durable.ErrDuplicate
			}
		}
		return out
	}}
	s, committed, stop := startSubmitter(t, f, time.Minute)
	sub := s.Submit(t.Context(), Terms{Patience: time.Minute}, text("a", "twice", "b")...)
	sub.Wait()
	sub.Wait() // again does no harm
	require.NoError(t, sub.Outcome(0))
	require.ErrorIs(t, sub.Outcome(1), durable.ErrDuplicate)
	require.NoError(t, sub.Outcome(2))
	require.NotEqual(t, sub.Message(0).ID, sub.Message(2).ID)
	sub.Release()
	stop()
	require.Equal(t, 2, committed())
	s.requireIdle(t)
}

// requireIdle checks that nothing is counted any more.
func (s *Submitter) requireIdle(t *testing.T) {
	t.Helper()
	require.Zero(t, s.bytes.Taken())
	require.Zero(t, s.admission.inside)
}

// Refused messages hold nothing, and none of them reaches the store.
func TestWhatHasNoRoomIsRefusedAsAWhole(t *testing.T) {
	for name, c := range map[string]struct {
		admission *Admission
		bytes     int64
	}{
		"bytes":     {newAdmission(100, 100), 700},
		"admission": {newAdmission(2, 0), 1 << 20},
	} {
		for _, lines := range []bool{true, false} {
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					f := &memstore.Store{Gate: make(chan struct{}, 10)}
					committer, _, stop := startCommitter(t, f, time.Hour)
					s := newSubmitter(committer, Options{Admission: c.admission,
						Bodies: share.New(share.Options{Most: c.bytes})})
					first := s.Submit(t.Context(), Terms{Patience: time.Minute, Lines: lines}, text("a")...)
					begun := time.Now()
					second := s.Submit(t.Context(), Terms{Patience: time.Minute, Lines: lines}, text("b", "c")...)
					second.Wait()
					require.ErrorIs(t, second.Outcome(1), problem.ErrOverloaded)
					if lines && name != "admission" {
						require.GreaterOrEqual(t, time.Since(begun), time.Minute, "lines wait for room")
					}
					second.Release()
					f.Gate <- struct{}{}
					first.Wait()
					require.NoError(t, first.Outcome(0))
					first.Release()
					stop()
					s.requireIdle(t)
					require.Equal(t, 1, f.Inserted())
				})
			})
		}
	}
}

// The context ends the wait for room. What was admitted before has its outcome all the same.
func TestAContextThatEndsTakesBackOnlyWhatWasNotAdmitted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &memstore.Store{Gate: make(chan struct{}, 10)}
		committer, _, stop := startCommitter(t, f, time.Hour)
		s := newSubmitter(committer, Options{Admission: newAdmission(1, 10),
			Bodies: share.New(share.Options{Most: 1 << 20})})
		ctx, cancel := context.WithCancel(t.Context())
		first := s.Submit(ctx, Terms{Patience: time.Hour, Lines: true}, text("a")...)
		time.AfterFunc(time.Second, cancel)
		second := s.Submit(ctx, Terms{Patience: time.Hour, Lines: true}, text("b")...)
		require.ErrorIs(t, second.Outcome(0), problem.ErrOverloaded)
		second.Release()
		f.Gate <- struct{}{}
		first.Wait()
		require.NoError(t, first.Outcome(0))
		first.Release()
		stop()
		s.requireIdle(t)
	})
}

// The deadline of the caller reaches the store: its outcome is unknown then, and not late.
func TestTheDeadlineOfAContextReachesTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &memstore.Store{Gate: make(chan struct{})}
		s, _, stop := startSubmitter(t, f, time.Hour)
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		begun := time.Now()
		sub := s.Submit(ctx, Terms{Patience: time.Minute}, text("a")...)
		sub.Wait()
		require.ErrorIs(t, sub.Outcome(0), durable.ErrOutcomeUnknown)
		require.Equal(t, 2*time.Second, time.Since(begun))
		sub.Release()
		stop()
	})
}

// A submission of one message is used again: nothing of the last one is left in it.
func TestASubmissionThatIsUsedAgainIsNew(t *testing.T) {
	fails := errors.New("fails")
	f := &memstore.Store{OnInsert: func(call int, batch []*durable.Message) []error {
		if call == 0 {
			return []error{fails}
		}
		return make([]error, len(batch))
	}}
	s, _, stop := startSubmitter(t, f, time.Minute)
	require.ErrorIs(t, s.add("a"), fails)
	require.NoError(t, s.add("b"))
	stop()
	require.ErrorIs(t, s.add("c"), problem.ErrDraining)
	s.requireIdle(t)
	one := s.submission(1, nil)
	require.Nil(t, one.ctx)
	require.Nil(t, one.refused)
	require.Nil(t, one.writes[0].msg)
}

func TestASubmissionOfOneMessageCostsFewAllocations(t *testing.T) {
	s, _, _ := startSubmitter(t, &memstore.Store{}, time.Minute)
	m := text("a")[0]
	allocated := testing.AllocsPerRun(200, func() {
		sub := s.Submit(context.Background(), Terms{Patience: time.Minute, Since: time.Now()}, m)
		sub.Wait()
		sub.Release()
	})
	// All of them are those of the transaction, which has this one message, and of the fake store.
	require.LessOrEqual(t, allocated, 20.0)
}

// Messages of one producer that stands for several users use the share of each of them.
func TestMessagesUseTheShareOfTheirAccount(t *testing.T) {
	held := make(chan struct{})
	f := &memstore.Store{OnInsert: func(_ int, batch []*durable.Message) []error {
		<-held
		return make([]error, len(batch))
	}}
	s, _, stop := startSubmitter(t, f, time.Minute)
	of := s.Submit(t.Context(), Terms{Patience: time.Minute, Account: share.Channel(7)}, text("a")...)
	require.Positive(t, s.bytes.Held(share.Channel(7)))
	require.Zero(t, s.bytes.Held(share.Producer(0)))
	own := s.Submit(t.Context(), Terms{Patience: time.Minute}, text("a")...)
	require.Positive(t, s.bytes.Held(share.Producer(0)))
	close(held)
	for _, sub := range []*Submission{of, own} {
		sub.Wait()
		require.NoError(t, sub.Outcome(0))
		sub.Release()
	}
	stop()
	s.requireIdle(t)
}
