// Package storetest is the conformance suite of durable.Store. Every server that the store
// supports must pass it.
package storetest

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/ident"
)

// An OpenInsert inserts messages as a second broker does, in a transaction that stays open
// until commit is called. Only servers with row locks have one.
type OpenInsert func(t *testing.T, s *durable.Store, channelNo uint32, ids ...ident.ID) (commit func())

// Run checks every promise of durable.Store. open returns an empty, migrated
// store that is closed when the test ends. The subtests run in parallel, each with a store of
// its own. openInsert is nil for a server without row locks.
func Run(t *testing.T, open func(*testing.T) *durable.Store, openInsert OpenInsert) {
	for _, group := range []map[string]func(*testing.T, *fixture){
		catalogueTests, extentTests, nodeTests, insertTests, guardTests, keyTests, readTests, outcomeTests, deadTests,
		scanTests, purgeTests, stateTests, expiryTests, orderTests, paceTests, holdTests, whyTests, keptLeaseTests,
		countTests, groupTests,
		alertTests,
		deleteTests, sqsKeyTests, tokenTests, sealedTests,
		identityTests, termsTests, scheduleTests, bookTests, bulkTests, stepTests, statusTests, exchangeTests,
		recipientTests, sinceTests, ackTests, storedTests, keepingTests, replayTests, endingTests, listTests,
		deadGroupTests, redrivingTests, chronicleTests, auditTests, placeTests,
	} {
		for name, test := range group {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				test(t, newFixture(t, open(t), openInsert))
			})
		}
	}
}

// A fixture is a store with a broker that has leased a node number.
type fixture struct {
	*durable.Store
	ctx        context.Context
	openInsert OpenInsert
	node       durable.NodeLease
	ids        *ident.Generator
	shared     []byte // see guardAll
}

func newFixture(t *testing.T, s *durable.Store, openInsert OpenInsert) *fixture {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 10*time.Minute)
	t.Cleanup(cancel)
	node, err := s.LeaseNode(ctx, t.Name(), time.Hour)
	require.NoError(t, err)
	now, err := s.NowMs(ctx)
	require.NoError(t, err)
	skew := now - time.Now().UnixMilli()
	f := &fixture{Store: s, ctx: ctx, openInsert: openInsert, node: node}
	f.ids = ident.NewGenerator(node.No, func() int64 { return time.Now().UnixMilli() + skew })
	return f
}

// channel returns a new channel with that many consumers.
func (f *fixture) channel(t *testing.T, id string, consumers int) (durable.Channel, []durable.Consumer) {
	t.Helper()
	ch, created, err := f.PutChannel(f.ctx, durable.Put{ID: id, NewToken: "t"})
	require.NoError(t, err)
	require.True(t, created)
	var out []durable.Consumer
	for i := range consumers {
		c, created, err := f.PutConsumer(f.ctx, consumerPut(id, fmt.Sprintf("k%d", i)))
		require.NoError(t, err)
		require.True(t, created)
		out = append(out, c)
	}
	ch.Audience = consumers
	return ch, out
}

func consumerPut(channel, id string) durable.ConsumerPut {
	url := "http://127.0.0.1/cb"
	return durable.ConsumerPut{Put: durable.Put{ID: id, NewToken: "t"}, ChannelID: channel, CallbackURL: &url}
}

// message returns a new message for a channel, with a fresh ID.
func (f *fixture) message(ch durable.Channel) *durable.Message {
	return &durable.Message{
		ID:          f.ids.Next(),
		ChannelNo:   ch.No,
		ProducerNo:  1,
		Audience:    ch.Audience,
		Shape:       ch.Shape,
		ContentType: "text/plain",
		Headers:     []byte("X-A:1\n"),
		Payload:     []byte("payload"),
	}
}

func (f *fixture) messages(ch durable.Channel, n int) []*durable.Message {
	out := make([]*durable.Message, n)
	for i := range out {
		out[i] = f.message(ch)
		out[i].Payload = fmt.Appendf(nil, "payload %d", i)
	}
	return out
}

// insert stores messages that must be accepted. On a slow machine their IDs may become too
// old. insert then gives them new IDs, as a broker does, so callers read the IDs afterwards.
func (f *fixture) insert(t *testing.T, batch ...*durable.Message) {
	t.Helper()
	f.insertUntilFresh(t, batch)
}

// stored returns the messages that are in the store, by ID.
func (f *fixture) stored(t *testing.T, batch []*durable.Message) map[ident.ID]durable.Message {
	t.Helper()
	out := map[ident.ID]durable.Message{}
	byChannel := map[uint32][]ident.ID{}
	for _, m := range batch {
		byChannel[m.ChannelNo] = append(byChannel[m.ChannelNo], m.ID)
	}
	for no, ids := range byChannel {
		got, err := f.Messages(f.ctx, no, ids)
		require.NoError(t, err)
		for _, m := range got {
			_, twice := out[m.ID]
			require.False(t, twice, "message %s is there once", m.ID)
			out[m.ID] = m
		}
	}
	return out
}

// race runs f n times at once and returns when all are done.
func race(n int, f func(i int)) {
	var wg sync.WaitGroup
	start := make(chan struct{})
	for i := range n {
		wg.Go(func() {
			<-start
			f(i)
		})
	}
	close(start)
	wg.Wait()
}

func ids(batch []*durable.Message) []ident.ID {
	out := make([]ident.ID, len(batch))
	for i, m := range batch {
		out[i] = m.ID
	}
	return out
}

func ptr[T any](v T) *T { return &v }
