package catalogue

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/problem"
)

// source is a store of resources that counts how often it is asked.
type source struct {
	mu          sync.Mutex
	state       durable.Changes
	err         error
	used        durable.Numbers
	untouchable error // the answer to Touch
	asked       atomic.Int64
	gate        chan struct{} // when not nil, each answer takes one value first
}

func (s *source) Changes(ctx context.Context, after int64) (durable.Changes, error) {
	s.asked.Add(1)
	if s.gate != nil {
		<-s.gate
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return durable.Changes{}, s.err
	}
	out := durable.Changes{Version: s.state.Version}
	if after > out.Version { // as durable.Store does
		after = 0
	}
	for _, p := range s.state.Producers {
		if p.Version > after {
			out.Producers = append(out.Producers, p)
		}
	}
	for _, c := range s.state.Channels {
		if c.Version > after {
			out.Channels = append(out.Channels, c)
		}
	}
	for _, k := range s.state.Consumers {
		if k.Version > after {
			out.Consumers = append(out.Consumers, k)
		}
	}
	for _, r := range s.state.Replays {
		if r.Version > after {
			out.Replays = append(out.Replays, r)
		}
	}
	if s.state.NewTokens {
		out.Tokens, out.NewTokens = s.state.Tokens, true
	}
	return out, nil
}

func (s *source) Extent(context.Context) (durable.Extent, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := durable.Extent{Version: s.state.Version}
	for _, p := range s.state.Producers {
		e.Producers.Add(p.Version)
	}
	for _, c := range s.state.Channels {
		e.Channels.Add(c.Version)
	}
	for _, k := range s.state.Consumers {
		e.Consumers.Add(k.Version)
	}
	return e, s.err
}

func (s *source) Touch(_ context.Context, used durable.Numbers) error {
	if s.untouchable != nil {
		return s.untouchable
	}
	s.change(func(*durable.Changes, int64) { s.used = s.used.Max(used) })
	return nil
}

func (s *source) change(f func(c *durable.Changes, version int64)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state.Version++
	f(&s.state, s.state.Version)
}

func (s *source) producer(id, token string) {
	s.change(func(c *durable.Changes, v int64) {
		c.Producers = append(c.Producers, durable.Producer{No: uint32(v), ID: id, Token: token, Version: v})
	})
}

func (s *source) channel(no uint32, id, token string) {
	s.change(func(c *durable.Changes, v int64) {
		c.Channels = append(c.Channels, durable.Channel{No: no, ID: id, Token: token, Version: v})
	})
}

// consumer adds one as the store does: its channel's audience grows with it.
func (s *source) consumer(channel uint32, id, token string) {
	s.change(func(c *durable.Changes, v int64) {
		for i := range c.Channels {
			if c.Channels[i].No == channel {
				c.Consumers = append(c.Consumers, durable.Consumer{No: 1000*channel + uint32(c.Channels[i].Audience),
					ChannelNo: channel,
					Position:  c.Channels[i].Audience, ID: id, Token: token, Version: v})
				c.Channels[i].Audience++
				c.Channels[i].Version = v
			}
		}
	})
}

func open(t *testing.T, s *source) *Catalogue {
	t.Helper()
	c := New(s, slog.New(slog.DiscardHandler))
	require.NoError(t, c.Refresh(t.Context()))
	return c
}

func TestACopyShowsWhatWasCommittedBeforeTheRefresh(t *testing.T) {
	s := &source{}
	s.producer("p", "pt")
	s.channel(1, "c", "ct")
	s.consumer(1, "k1", "t1")
	c := open(t, s)
	require.Equal(t, "p", c.Producer("p").ID)
	require.Len(t, c.Channel("c").Consumers, 1)
	before := c.Channel("c")

	s.consumer(1, "k2", "t2")
	require.Nil(t, c.Consumer("c", "k2"))
	require.NoError(t, c.Refresh(t.Context()))
	require.Equal(t, 1, c.Consumer("c", "k2").Position)
	require.Equal(t, "k2", c.Channel("c").Consumers[1].ID)
	require.Equal(t, 2, c.Channel("c").Audience)
	require.Len(t, before.Consumers, 1, "what was handed out does not change")
	require.Equal(t, "k1", c.ConsumerByNo(1000).ID)
	require.Equal(t, "c", c.ChannelByNo(1).ID)
	require.Nil(t, c.Consumer("x", "k1"))
}

func TestListsAreSortedByIDAndPaged(t *testing.T) {
	s := &source{}
	s.channel(1, "c", "ct")
	for _, id := range []string{"b", "a", "C", "d"} {
		s.producer(id, "t")
		s.consumer(1, id, "t")
		s.channel(uint32(10+len(s.state.Channels)), id, "t")
	}
	c := open(t, s)
	var got []string
	for _, p := range c.Producers("", 10) {
		got = append(got, p.ID)
	}
	require.Equal(t, []string{"C", "a", "b", "d"}, got)
	require.Equal(t, "b", c.Producers("aa", 1)[0].ID)
	require.Empty(t, c.Producers("e", 10))
	require.Equal(t, []string{"C", "a"}, []string{c.Consumers("c", "", 2)[0].ID, c.Consumers("c", "", 2)[1].ID})
	require.Nil(t, c.Consumers("nope", "", 2))
	require.Equal(t, "c", c.Channels("c", 1)[0].ID)
	s.producer("aa", "t")
	require.NoError(t, c.Refresh(t.Context()))
	require.Equal(t, "aa", c.Producers("aa", 1)[0].ID, "a new one enters the order")
}

func TestARefusalIsNeverGivenFromTheCopyAlone(t *testing.T) {
	s := &source{}
	s.channel(1, "c", "ct")
	s.producer("p", "old")
	c := open(t, s)
	ctx := t.Context()
	b := func(s string) []byte { return []byte(s) }

	// Another broker rotates the token and adds a consumer; this one is asked next.
	s.change(func(st *durable.Changes, v int64) { st.Producers[0].Token, st.Producers[0].Version = "new", v })
	s.consumer(1, "k", "kt")
	_, p, err := c.AuthorizeProducer(ctx, "c", b("ct"), b("p"), b("new"))
	require.NoError(t, err)
	require.Equal(t, "p", p.ID)
	_, k, err := c.AuthorizeConsumer(ctx, "c", b("ct"), "k", b("kt"))
	require.NoError(t, err)
	require.Equal(t, "k", k.ID)

	asked := s.asked.Load()
	_, _, err = c.AuthorizeProducer(ctx, "c", b("ct"), b("p"), b("new"))
	require.NoError(t, err)
	require.Equal(t, asked, s.asked.Load(), "an admission costs no query")

	for _, refused := range []struct {
		err  error
		want *problem.Problem
	}{
		{third(c.AuthorizeProducer(ctx, "x", b("ct"), b("p"), b("new"))), ErrUnknownChannel},
		{third(c.AuthorizeProducer(ctx, "c", b("no"), b("x"), b("new"))), ErrChannelToken},
		{third(c.AuthorizeProducer(ctx, "c", nil, b("p"), b("new"))), ErrChannelToken},
		{third(c.AuthorizeProducer(ctx, "c", b("ct"), b("x"), b("new"))), ErrUnknownProducer},
		{third(c.AuthorizeProducer(ctx, "c", b("ct"), b("p"), b("old"))), ErrProducerToken},
		{third(c.AuthorizeProducer(ctx, "c", b("ct"), b("p"), b("ne"))), ErrProducerToken},
		{third(c.AuthorizeConsumer(ctx, "x", b("ct"), "k", b("kt"))), ErrUnknownChannel},
		{third(c.AuthorizeConsumer(ctx, "c", b("kt"), "k", b("kt"))), ErrChannelToken},
		{third(c.AuthorizeConsumer(ctx, "c", b("ct"), "x", b("kt"))), ErrUnknownConsumer},
		{third(c.AuthorizeConsumer(ctx, "c", b("ct"), "k", b("ct"))), ErrConsumerToken},
	} {
		require.ErrorIs(t, refused.err, refused.want)
	}
	s.mu.Lock()
	s.err = fmt.Errorf("%w: it is away", durable.ErrFailed)
	s.mu.Unlock()
	_, _, err = c.AuthorizeProducer(ctx, "c", b("ct"), b("p"), b("wrong"))
	require.Equal(t, 503, problem.From(err).Status, "without the store nobody is refused for good")
	_, _, err = c.AuthorizeProducer(ctx, "c", b("ct"), b("p"), b("new"))
	require.NoError(t, err, "and nobody who is known is held up")
}

func third[A, B any](_ A, _ B, err error) error { return err }

func TestAnEmptyTokenMatchesNothing(t *testing.T) {
	require.False(t, TokenMatches(nil, ""))
	require.False(t, TokenMatches([]byte("x"), ""))
	require.False(t, TokenMatches(nil, "x"))
	require.True(t, TokenMatches([]byte("x"), "x"))
}

func TestConcurrentRefreshesShareOneQueryThatBeganAfterThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &source{}
		c := open(t, s)
		s.gate = make(chan struct{})
		before := s.asked.Load()
		var done atomic.Int64
		refresh := func(times int) {
			for range times {
				go func() {
					require.NoError(t, c.Refresh(context.Background()))
					done.Add(1)
				}()
			}
			synctest.Wait() // each waits for the store, or for the one that does
		}
		answer := func() { s.gate <- struct{}{}; synctest.Wait() }

		refresh(1)
		require.EqualValues(t, 1, s.asked.Load()-before)
		s.producer("p", "t")
		refresh(20)
		require.EqualValues(t, 1, s.asked.Load()-before, "one query at a time")
		answer()
		require.EqualValues(t, 1, done.Load(), "those that came later are not served by a query that began before them")
		require.EqualValues(t, 2, s.asked.Load()-before)
		s.producer("late", "t")
		refresh(5)
		answer()
		require.EqualValues(t, 21, done.Load(), "one query for all that came before it")
		require.NotNil(t, c.Producer("p"))
		require.EqualValues(t, 3, s.asked.Load()-before, "and another for those that came after it began")
		answer()
		require.EqualValues(t, 26, done.Load())
		require.NotNil(t, c.Producer("late"))
		require.EqualValues(t, 3, s.asked.Load()-before)
	})
}

func TestWatchersHearOfEveryConsumerOnceAndOfEachChange(t *testing.T) {
	s := &source{}
	s.channel(1, "c", "ct")
	s.consumer(1, "k1", "t")
	c := open(t, s)
	var heard []string
	c.Watch(func(k *durable.Consumer) { heard = append(heard, k.ID+" "+k.Token) })
	s.consumer(1, "k2", "t")
	require.NoError(t, c.Refresh(t.Context()))
	s.change(func(st *durable.Changes, v int64) { st.Consumers[0].Token, st.Consumers[0].Version = "u", v })
	require.NoError(t, c.Refresh(t.Context()))
	require.Equal(t, []string{"k1 t", "k2 t", "k1 u"}, heard)
}

func TestRunFollowsHintsAndSurvivesAStoreThatIsAway(t *testing.T) {
	s := &source{err: errors.New("away")}
	c := New(s, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- c.Run(ctx) }()
	c.Hint()
	require.Eventually(t, func() bool { return s.asked.Load() > 0 }, 10*time.Second, time.Millisecond)
	s.mu.Lock()
	s.err = nil
	s.mu.Unlock()
	s.producer("p", "t")
	c.Hint()
	require.Eventually(t, func() bool { return c.Producer("p") != nil }, 10*time.Second, time.Millisecond)
	cancel()
	require.NoError(t, <-done)
}

func BenchmarkAuthorizeProducer(b *testing.B) {
	s := &source{}
	s.channel(1, "c", "ct")
	s.producer("p", "pt")
	c := New(s, slog.New(slog.DiscardHandler))
	_ = c.Refresh(b.Context())
	ct, id, pt := []byte("ct"), []byte("p"), []byte("pt")
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := c.AuthorizeProducer(context.Background(), "c", ct, id, pt); err != nil {
			b.Fatal(err)
		}
	}
}

func ExampleCatalogue_Channels() {
	s := &source{}
	s.channel(1, "orders", "t")
	s.channel(2, "invoices", "t")
	c := New(s, slog.New(slog.DiscardHandler))
	_ = c.Refresh(context.Background())
	for _, ch := range c.Channels("", 10) {
		fmt.Println(ch.ID)
	}
	// Output:
	// invoices
	// orders
}

// A replay joins the lane of its consumer, which has to be there. Both may be in the copy already.
func TestAWatcherHearsOfAConsumerBeforeItsReplays(t *testing.T) {
	s := &source{}
	s.channel(1, "c", "t")
	for i := range 20 {
		s.consumer(1, fmt.Sprint("k", i), "t")
	}
	s.change(func(c *durable.Changes, v int64) {
		for _, k := range c.Consumers {
			c.Replays = append(c.Replays, durable.Replay{No: 1000 + k.No, ChannelNo: 1, ConsumerNo: k.No, Version: v})
		}
	})
	c := open(t, s)
	var heard []uint32
	c.Watch(func(k *durable.Consumer) { heard = append(heard, k.No) })
	require.Len(t, heard, 40)
	require.True(t, slices.IsSorted(heard), heard)
}
