package catalogue

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
)

// edit changes the records as PUTs do.
func (s *source) edit(f func(c *durable.Changes)) {
	s.change(func(c *durable.Changes, v int64) {
		for i := range c.Producers {
			c.Producers[i].Version = v
		}
		for i := range c.Channels {
			c.Channels[i].Version = v
		}
		for i := range c.Consumers {
			c.Consumers[i].Version = v
		}
		f(c)
	})
}

// admitted returns a copy with a producer, a channel and a consumer, and what two requests were
// admitted with.
func admitted(t *testing.T) (s *source, c *Catalogue, produces, consumes Standing) {
	t.Helper()
	s = &source{}
	s.producer("p", "pt")
	s.channel(7, "c", "ct")
	s.consumer(7, "k", "kt")
	c = open(t, s)
	produces, err := c.AdmitProducer(t.Context(), "c", []byte("ct"), []byte("p"), []byte("pt"))
	require.NoError(t, err)
	consumes, err = c.AdmitConsumer(t.Context(), "c", []byte("ct"), "k", []byte("kt"))
	require.NoError(t, err)
	return s, c, produces, consumes
}

func TestAStandingEndsWhereANewRequestWouldBeRefused(t *testing.T) {
	for name, tc := range map[string]struct {
		change             func(c *durable.Changes)
		produces, consumes error
	}{
		"nothing": {func(*durable.Changes) {}, nil, nil},
		"the channel's token": {func(c *durable.Changes) { c.Channels[0].Token = "new" }, ErrChannelToken,
			ErrChannelToken},
		"the end of the channel": {func(c *durable.Changes) { c.Channels[0].Deleted = true }, ErrUnknownChannel,
			ErrUnknownChannel},
		"the producer's token":    {func(c *durable.Changes) { c.Producers[0].Token = "new" }, ErrProducerToken, nil},
		"the end of the producer": {func(c *durable.Changes) { c.Producers[0].Deleted = true }, ErrUnknownProducer, nil},
		"the consumer's token":    {func(c *durable.Changes) { c.Consumers[0].Token = "new" }, nil, ErrConsumerToken},
		"the end of the consumer": {func(c *durable.Changes) { c.Consumers[0].State = durable.StateDeleted }, nil,
			ErrUnknownConsumer},
		"another producer of p":    {func(c *durable.Changes) { c.Producers[0].No++ }, ErrUnknownProducer, nil},
		"a channel without tokens": {func(c *durable.Changes) { c.Channels[0].Token = "" }, ErrChannelToken, ErrChannelToken},
	} {
		t.Run(name, func(t *testing.T) {
			s, c, produces, consumes := admitted(t)
			s.edit(tc.change)
			require.NoError(t, c.Refresh(t.Context()))
			require.Equal(t, tc.produces, produces.Check())
			require.Equal(t, tc.consumes, consumes.Check())
		})
	}
}

func TestAStandingHasTheRecordsThatCountNow(t *testing.T) {
	s, c, produces, consumes := admitted(t)
	s.edit(func(c *durable.Changes) {
		c.Consumers[0].Policy, c.Consumers[0].Type, c.Channels[0].Intake, c.Producers[0].PublishSecret = "new", durable.Pull,
			"new", "new"
	})
	require.NoError(t, c.Refresh(t.Context()))
	require.NoError(t, produces.Check())
	require.NoError(t, consumes.Check())
	require.Equal(t, "new", produces.Producer.PublishSecret)
	require.Equal(t, "new", produces.Channel.Channel.Intake)
	require.Equal(t, "new", consumes.Consumer.Policy)
	require.Equal(t, durable.Pull, consumes.Consumer.Type)
}

// A change that came between the admission of a request and its first question counts.
func TestAStandingMissesNoChange(t *testing.T) {
	s, c, produces, _ := admitted(t)
	asked := s.asked.Load()
	require.NoError(t, produces.Check())
	require.Equal(t, asked, s.asked.Load(), "a request that may go on asks no store")
	s.edit(func(c *durable.Changes) { c.Producers[0].Token = "new" })
	require.NoError(t, c.Refresh(t.Context()))
	s.edit(func(c *durable.Changes) { c.Producers[0].Token = "pt" })
	require.NoError(t, produces.Check(), "the copy was behind: the refusal looks again, as for a new request")
	s.edit(func(c *durable.Changes) { c.Producers[0].Token = "new" })
	require.NoError(t, c.Refresh(t.Context()))
	require.Equal(t, ErrProducerToken, produces.Check())
}

func TestAChangeWakesThoseWhomItConcerns(t *testing.T) {
	s, c, produces, consumes := admitted(t)
	s.consumer(7, "other", "ot")
	require.NoError(t, c.Refresh(t.Context()))
	byProducer, stopProducer := produces.Await()
	byConsumer, stopConsumer := consumes.Await()
	s.change(func(c *durable.Changes, v int64) { c.Consumers[1].Token, c.Consumers[1].Version = "new", v })
	require.NoError(t, c.Refresh(t.Context()))
	require.Empty(t, byProducer)
	require.Empty(t, byConsumer)
	s.change(func(c *durable.Changes, v int64) { c.Consumers[0].Token, c.Consumers[0].Version = "new", v })
	require.NoError(t, c.Refresh(t.Context()))
	require.Empty(t, byProducer)
	require.Len(t, byConsumer, 1)
	s.change(func(c *durable.Changes, v int64) { c.Channels[0].Token, c.Channels[0].Version = "new", v })
	require.NoError(t, c.Refresh(t.Context()))
	require.Len(t, byProducer, 1)
	stopProducer()
	stopConsumer()
	require.Empty(t, c.watched.by)
}

// A copy that was replaced, because a backup was restored, wakes everybody.
func TestARestorationWakesAndChecksAll(t *testing.T) {
	s, c, _, consumes := admitted(t)
	changed, stop := consumes.Await()
	defer stop()
	s.change(func(c *durable.Changes, _ int64) { c.Version, c.Consumers = 1, nil })
	require.NoError(t, c.Refresh(t.Context()))
	require.NoError(t, c.audit(t.Context()))
	require.NoError(t, c.Refresh(t.Context()))
	require.NoError(t, c.audit(t.Context()))
	require.Len(t, changed, 1)
	require.Error(t, consumes.Check())
}

func TestAStandingOfNothingRefusesNothing(t *testing.T) {
	var none *Standing
	require.NoError(t, none.Check())
	changed, stop := none.Await()
	require.Nil(t, changed)
	stop()
}

func BenchmarkCheckUnchanged(b *testing.B) {
	s := &source{}
	s.producer("p", "pt")
	s.channel(7, "c", "ct")
	c := New(s, nil)
	require.NoError(b, c.Refresh(b.Context()))
	st, err := c.AdmitProducer(b.Context(), "c", []byte("ct"), []byte("p"), []byte("pt"))
	require.NoError(b, err)
	for b.Loop() {
		if st.Check() != nil {
			b.Fatal("refused")
		}
	}
}
