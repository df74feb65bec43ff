package accept

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/model/problem"
	"github.com/penstock-broker/penstock/internal/test/memstore"
)

// A message that was authorised from an old copy goes to the resource that has the ID and the
// token now, or is refused as if there were none.
func TestMessagesForWhatIsDeletedAreRefusedOrGoToItsSuccessor(t *testing.T) {
	f := &memstore.Store{
		Version: 5,
		Producers: []durable.Producer{
			{No: 1, ID: "p", Token: "t", Version: 1}, {No: 2, ID: "gone", Token: "t", Deleted: true, Version: 1},
			{No: 3, ID: "again", Token: "t", Deleted: true, Version: 1}, {No: 4, ID: "again", Token: "t", Version: 1},
			{No: 5, ID: "signs", Token: "t", Deleted: true, Version: 1}, {No: 6, ID: "signs", Token: "t", PublishSecret: "s",
				Version: 1},
		},
		Channels: []durable.Channel{
			{No: 2, ID: "gone", Token: "t", Paused: true, Deleted: true, Version: 1},
			{No: 3, ID: "again", Token: "t", Paused: true, Deleted: true, Version: 1}, {No: 4, ID: "again", Token: "t",
				Audience: 7, Version: 1},
			{No: 5, ID: "other", Token: "t", Paused: true, Deleted: true, Version: 1}, {No: 6, ID: "other", Token: "u",
				Version: 1},
			{No: 7, ID: "paused", Token: "t", Paused: true, Version: 1},
			{No: 8, ID: "again-paused", Token: "t", Paused: true, Deleted: true, Version: 1}, {No: 9, ID: "again-paused",
				Token: "t", Paused: true, Version: 1},
		},
	}
	c, committed, stop := startCommitter(t, f, 5*time.Second) // channel 1 is there
	type message struct{ channel, producer uint32 }
	var msgs []*durable.Message
	want := []struct {
		sent, stored message
		refusal      error
	}{
		{message{1, 1}, message{1, 1}, nil},
		{message{2, 1}, message{}, catalogue.ErrUnknownChannel},
		{message{3, 1}, message{4, 1}, nil},
		{message{5, 1}, message{}, catalogue.ErrUnknownChannel},
		{message{7, 1}, message{}, problem.ErrChannelPaused},
		{message{8, 1}, message{}, problem.ErrChannelPaused},
		{message{1, 2}, message{}, catalogue.ErrUnknownProducer},
		{message{1, 3}, message{1, 4}, nil},
		{message{1, 5}, message{}, catalogue.ErrUnknownProducer},
		{message{1, 0}, message{1, 0}, nil}, // the broker's own
	}
	for _, w := range want {
		msgs = append(msgs, &durable.Message{ChannelNo: w.sent.channel, ProducerNo: w.sent.producer})
	}
	results := c.insert(context.Background(), writesOf(msgs...))
	for i, w := range want {
		require.Equal(t, w.refusal, results[i], i)
		if w.refusal == nil {
			require.Equal(t, w.stored, message{msgs[i].ChannelNo, msgs[i].ProducerNo})
		}
	}
	require.Equal(t, 7, msgs[2].Audience, "that of its successor")
	require.Equal(t, 4, f.Inserted())
	stop()
	require.Zero(t, committed())
}

// A message of the journal was answered 202: it is stored although its producer was deleted since.
func TestAMessageOfTheJournalOutlivesItsProducer(t *testing.T) {
	f := &memstore.Store{
		Version: 5,
		Producers: []durable.Producer{{No: 1, ID: "p", Token: "t", Version: 1}, {No: 2, ID: "gone", Token: "t", Deleted: true,
			Version: 1}},
		Channels: []durable.Channel{{No: 2, ID: "paused", Token: "t", Paused: true, Version: 1}},
	}
	c, _, stop := startCommitter(t, f, 5*time.Second)
	defer stop()
	writes := writesOf(&durable.Message{ChannelNo: 1, ProducerNo: 2}, &durable.Message{ChannelNo: 1, ProducerNo: 2},
		&durable.Message{ChannelNo: 2, ProducerNo: 2})
	writes[0].accepted, writes[2].accepted = true, true
	require.Equal(t, []error{nil, catalogue.ErrUnknownProducer, problem.ErrChannelPaused},
		c.insert(context.Background(), writes))
	require.Equal(t, 1, f.Inserted())
	require.EqualValues(t, 2, writes[0].msg.ProducerNo)
}

// What was not deleted, and where nothing was, is inserted at once.
func TestTheInsertNamesTheVersionThatIsKnown(t *testing.T) {
	f := memstore.Subscribed()
	leases := make(chan durable.NodeLease, 1)
	c, _, _ := startCommitter(t, f, 5*time.Second)
	c.store = noted{c.store, leases}
	require.Equal(t, []error{nil}, c.insert(context.Background(), writesOf(&durable.Message{ChannelNo: 1})))
	require.Equal(t, f.Version, (<-leases).Known)
}

// A noted store tells the leases of its inserts.
type noted struct {
	Store
	leases chan durable.NodeLease
}

func (n noted) Insert(ctx context.Context, lease durable.NodeLease, batch []*durable.Message) []error {
	n.leases <- lease
	return n.Store.Insert(ctx, lease, batch)
}

func writesOf(msgs ...*durable.Message) []*write {
	writes := make([]*write, len(msgs))
	for i, m := range msgs {
		writes[i] = &write{msg: m, of: new(Submission)}
	}
	return writes
}
