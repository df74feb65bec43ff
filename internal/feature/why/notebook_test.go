package why

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/ident"
)

// A factStore keeps facts in memory.
type factStore struct {
	mu    sync.Mutex
	fail  bool
	calls int
	facts map[uint32]durable.Fact
}

func (s *factStore) KeepFacts(_ context.Context, facts []durable.Fact) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fail {
		return errors.New("away")
	}
	s.calls++
	if s.facts == nil {
		s.facts = map[uint32]durable.Fact{}
	}
	for _, f := range facts {
		s.facts[f.ConsumerNo] = s.facts[f.ConsumerNo].Newer(f)
	}
	return nil
}

// newTestNotebook is a notebook in which consumer 100 is a replay of 1, and 200 is deleted.
func newTestNotebook(s *factStore) *Notebook {
	return NewNotebook(s, func(no uint32) (uint32, bool) {
		if no == 100 {
			return 1, true
		}
		return no, no != 200
	}, slog.Default())
}

func TestTheNotebookKeepsTheNewestAttemptOfEachConsumer(t *testing.T) {
	s := &factStore{}
	n := newTestNotebook(s)
	n.Note([]durable.Outcome{
		{Kind: durable.OutcomeDelivered, ConsumerNo: 1, AtMs: 10, StatusCode: 204},
		{Kind: durable.OutcomeRetry, ConsumerNo: 1, AtMs: 20, StatusCode: 503, Error: "status 503"},
		{Kind: durable.OutcomeDelivered, ConsumerNo: 1, AtMs: 5, StatusCode: 200},
		{Kind: durable.OutcomeGivenBack, ConsumerNo: 2, AtMs: 10},
		durable.Expiration(3, ident.ID{}, 0, 0, 10),
		{Kind: durable.OutcomeDelivered, ConsumerNo: 100, AtMs: 15, StatusCode: 201},
		{Kind: durable.OutcomeDelivered, ConsumerNo: 200, AtMs: 15, StatusCode: 201},
	})
	require.Equal(t, durable.Fact{ConsumerNo: 1, AttemptMs: 20, SuccessMs: 10, StatusCode: 503, Error: "status 503"},
		n.Of(1))
	require.NoError(t, n.flush(t.Context()))
	require.Equal(t, map[uint32]durable.Fact{1: {ConsumerNo: 1, AttemptMs: 20, SuccessMs: 15, StatusCode: 503,
		Error: "status 503"}}, s.facts, "a replay counts for its consumer; what is no attempt, and what is deleted, for none")
	require.Equal(t, s.facts[1], n.Of(1))
	require.NoError(t, n.flush(t.Context()))
	require.Equal(t, 1, s.calls, "nothing has changed")
	n.Forget(1)
	require.Zero(t, n.Of(1).AttemptMs)
}

func TestFactsAreWrittenInBoundedTurnsAndAgainAfterAFailure(t *testing.T) {
	s := &factStore{fail: true}
	n := newTestNotebook(s)
	var all []durable.Outcome
	for no := range uint32(flushRows + 300) {
		all = append(all, durable.Outcome{Kind: durable.OutcomeDelivered, ConsumerNo: 1000 + no, AtMs: 10})
	}
	n.Note(all)
	require.Error(t, n.flush(t.Context()))
	s.fail = false
	for written := 0; n.waiting(); {
		require.NoError(t, n.flush(t.Context()))
		require.LessOrEqual(t, len(s.facts)-written, flushRows)
		written = len(s.facts)
	}
	require.Len(t, s.facts, len(all))
}

// The end of a broker writes what is left.
func TestTheLastFactsAreWrittenAtTheEnd(t *testing.T) {
	s := &factStore{}
	n := newTestNotebook(s)
	ctx, cancel := context.WithCancel(t.Context())
	n.Note([]durable.Outcome{{Kind: durable.OutcomeDelivered, ConsumerNo: 1, AtMs: 10}})
	cancel()
	ended := make(chan struct{})
	go func() { n.Run(ctx); close(ended) }()
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Fatal("Run goes on")
	}
	require.Len(t, s.facts, 1)
}

func TestNotesOfABatchCostNoAllocation(t *testing.T) {
	n := newTestNotebook(&factStore{})
	batch := make([]durable.Outcome, 100)
	for i := range batch {
		batch[i] = durable.Outcome{Kind: durable.OutcomeDelivered, ConsumerNo: uint32(1 + i%3), AtMs: int64(i),
			StatusCode: 204}
	}
	n.Note(batch)
	require.Zero(t, testing.AllocsPerRun(100, func() { n.Note(batch) }))
}

func BenchmarkNote(b *testing.B) {
	n := newTestNotebook(&factStore{})
	batch := make([]durable.Outcome, 100)
	for i := range batch {
		batch[i] = durable.Outcome{Kind: durable.OutcomeDelivered, ConsumerNo: uint32(1 + i%8), AtMs: int64(i),
			StatusCode: 204}
	}
	for b.Loop() {
		n.Note(batch)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/100, "ns/outcome")
}

func TestEveryCodeHasAPlaceAndAPhrase(t *testing.T) {
	seen := map[Code]bool{}
	for _, c := range Codes() {
		require.False(t, seen[c], c)
		seen[c] = true
		require.NotEmpty(t, phrases[c], c)
	}
	require.Len(t, phrases, len(Codes()))
	require.True(t, Delivered.Over())
	require.False(t, ChannelPaused.Over())
	require.False(t, Known("none"))
}

// A claim is written at most each ten seconds, and when the broker stops.
func TestTheClaimsOfWorkersAreWrittenNowAndThen(t *testing.T) {
	store := &factStore{}
	n := newTestNotebook(store)
	written := func(ms int64, last bool) bool {
		before := store.calls
		n.Claimed(7, ms, last)
		require.NoError(t, n.flush(t.Context()))
		return store.calls > before
	}
	const at = 1_700_000_000_000
	require.True(t, written(at, false))
	require.False(t, written(at+9_999, false))
	require.True(t, written(at+10_000, false))
	require.False(t, written(at, true), "an older one")
	require.True(t, written(at+10_001, true))
	require.EqualValues(t, at+10_001, store.facts[7].ClaimMs)
	require.EqualValues(t, at+10_001, n.Of(7).ClaimMs)
}
