package catalogue

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/ident"
)

// remove deletes the consumer with that number.
func (s *source) remove(no uint32) {
	s.change(func(c *durable.Changes, v int64) {
		for i := range c.Consumers {
			if c.Consumers[i].No == no {
				c.Consumers[i].State, c.Consumers[i].Until, c.Consumers[i].Version = durable.StateDeleted, ident.AtMillis(5), v
			}
		}
	})
}

func TestDeletedResourcesAreFoundByNumberOnly(t *testing.T) {
	s := &source{}
	s.producer("p", "t")
	s.channel(1, "c", "t")
	s.consumer(1, "k", "t")
	s.consumer(1, "l", "t")
	copies := []*Catalogue{open(t, s)}
	require.Len(t, copies[0].Consumers("c", "", 10), 2)
	require.Len(t, copies[0].Producers("", 10), 1)
	require.Len(t, copies[0].Channels("", 10), 1)
	heard := 0
	copies[0].Watch(func(k *durable.Consumer) {
		if k.Deleted() {
			heard++
		}
	})

	s.remove(1000)
	s.consumer(1, "k", "new")
	s.change(func(c *durable.Changes, v int64) { c.Producers[0].Deleted, c.Producers[0].Version = true, v })
	require.NoError(t, copies[0].Refresh(t.Context()))
	copies = append(copies, open(t, s)) // a broker that starts learns all of it at once
	for _, c := range copies {
		require.True(t, c.ConsumerByNo(1000).Deleted())
		require.Equal(t, "new", c.Consumer("c", "k").Token)
		require.EqualValues(t, 1002, c.Consumer("c", "k").No)
		require.ElementsMatch(t, []uint32{1001, 1002}, c.ConsumerNos())
		list := c.Consumers("c", "", 10)
		require.Len(t, list, 2)
		require.EqualValues(t, 1002, list[0].No)
		ch := c.Channel("c")
		require.True(t, ch.Deletions())
		require.Len(t, ch.Consumers, 3, "positions stay")
		to := ch.Recipients(durable.Head{ID: ident.AtMillis(1), Audience: 2})
		require.Len(t, to, 1)
		require.EqualValues(t, 1001, to[0].No)
		require.Nil(t, c.Producer("p"))
		require.True(t, c.ProducerByNo(1).Deleted)
		require.True(t, c.DeletedProducers())
		require.Empty(t, c.Producers("", 10))
		_, _, err := c.AuthorizeProducer(t.Context(), "c", []byte("t"), []byte("p"), []byte("t"))
		require.ErrorIs(t, err, ErrUnknownProducer)
	}
	require.Equal(t, 1, heard)

	s.remove(1001)
	s.remove(1002)
	s.change(func(c *durable.Changes, v int64) {
		c.Channels[0].Deleted, c.Channels[0].Paused, c.Channels[0].Version = true, true, v
	})
	s.channel(7, "c", "t2")
	for _, c := range append(copies, open(t, s)) {
		require.NoError(t, c.Refresh(t.Context()))
		require.EqualValues(t, 7, c.Channel("c").No)
		require.True(t, c.ChannelByNo(1).Deleted)
		require.Equal(t, []uint32{1}, c.DeletedChannels())
		require.Len(t, c.Channels("", 10), 1)
		require.Empty(t, c.Consumers("c", "", 10))
		require.Nil(t, c.Consumer("c", "k"))
		require.Empty(t, c.ConsumerNos())
	}
}

func TestRecipientsOfAChannelWithoutDeletionsTakeNoMemory(t *testing.T) {
	s := &source{}
	s.channel(1, "c", "t")
	s.consumer(1, "k", "t")
	ch := open(t, s).Channel("c")
	require.Zero(t, testing.AllocsPerRun(100, func() { ch.Recipients(durable.Head{Audience: 1}) }))
}
