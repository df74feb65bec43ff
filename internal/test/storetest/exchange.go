package storetest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/ident"
)

// answer is the exchange of a job with a response.
func answer(k uint32, id ident.ID, atMs int64, back bool, body string) *durable.Exchange {
	e := &durable.Exchange{ConsumerNo: k, ID: id, GoesBack: back, Attempt: 1, Status: 200, DeliveredMs: atMs,
		Headers: []byte("X-A:1\n"), Body: []byte(body)}
	e.Answered(atMs)
	return e
}

// pending is the exchange of a job whose result is awaited.
func pending(k uint32, id ident.ID, dueMs, deadlineMs int64) *durable.Exchange {
	return &durable.Exchange{ConsumerNo: k, ID: id, State: durable.DeliveredReceiver, Attempt: 1, Status: 202,
		DeliveredMs: 1, DueMs: dueMs, DeadlineMs: deadlineMs, URL: "http://x/1"}
}

func (f *fixture) exchange(t *testing.T, k uint32, id ident.ID) durable.Exchange {
	t.Helper()
	all, err := f.Exchanges(f.ctx, k, []ident.ID{id})
	require.NoError(t, err)
	require.Len(t, all, 1)
	return all[0]
}

// answered is a delivery with an exchange.
func answered(e *durable.Exchange) durable.Outcome {
	o := delivered(e.ConsumerNo, e.ID, 1, 1000)
	o.Exchange = e
	return o
}

var exchangeTests = map[string]func(*testing.T, *fixture){
	"a response is stored with its outcome, and the first one counts": func(t *testing.T, f *fixture) {
		k, id := f.jobs(t, 3)
		f.record(t, answered(answer(k, id[0], 1000, false, "one\x00\xff")), delivered(k, id[1], 1, 1000))
		f.record(t, answered(answer(k, id[0], 2000, false, "two")))
		e := f.exchange(t, k, id[0])
		require.Equal(t, *answer(k, id[0], 1000, false, "one\x00\xff"), e)
		require.True(t, e.Over())
		require.Equal(t, durable.Delivered, f.state(t, k, id[0]).Status)
		heads, err := f.ExchangeHeads(f.ctx, k, id)
		require.NoError(t, err)
		require.Equal(t, map[ident.ID]durable.ExchangeHead{id[0]: {State: durable.ResponseReceived, Bytes: len(e.Body) +
			len(e.Headers)}}, heads)
	},
	"an outcome that is refused leaves no exchange": func(t *testing.T, f *fixture) {
		k, id := f.jobs(t, 2)
		bad := delivered(k, id[1], 1, 1000)
		bad.Priority = -1
		require.Error(t, f.Record(f.ctx, []durable.Outcome{answered(answer(k, id[0], 1000, false, "x")), bad}))
		all, err := f.Exchanges(f.ctx, k, id)
		require.NoError(t, err)
		require.Empty(t, all)
	},
	"a posted response is taken once, before the outcome or after it": func(t *testing.T, f *fixture) {
		k, id := f.jobs(t, 3)
		require.NoError(t, f.PostExchange(f.ctx, *answer(k, id[0], 5, false, "early")))
		f.record(t, answered(pending(k, id[0], 10, 20)))
		require.Equal(t, "early", string(f.exchange(t, k, id[0]).Body), "it does not go back")
		f.record(t, answered(pending(k, id[1], 10, 20)))
		require.NoError(t, f.PostExchange(f.ctx, *answer(k, id[1], 15, false, "late")))
		e := f.exchange(t, k, id[1])
		require.Equal(t, durable.ResponseReceived, e.State)
		require.Equal(t, "late", string(e.Body))
		require.EqualValues(t, durable.Never, e.DueMs)
		for _, i := range id[:2] {
			require.ErrorIs(t, f.PostExchange(f.ctx, *answer(k, i, 16, false, "again")), durable.ErrDuplicate)
		}
		var won int
		results := make([]error, 4)
		race(4, func(i int) { results[i] = f.PostExchange(f.ctx, *answer(k, id[2], 16, false, "race")) })
		for _, err := range results {
			if err == nil {
				won++
			}
		}
		require.Equal(t, 1, won)
	},
	"the response of a later delivery counts where none came before": func(t *testing.T, f *fixture) {
		k, id := f.jobs(t, 3)
		failed := pending(k, id[2], 10, 20)
		failed.Fail(30, "no result")
		f.record(t, answered(pending(k, id[0], 10, 20)), answered(answer(k, id[1], 10, false, "first")), answered(failed))
		f.record(t, answered(answer(k, id[0], 40, false, "late")), answered(answer(k, id[1], 40, false, "second")),
			answered(answer(k, id[2], 40, false, "too late")))
		e := f.exchange(t, k, id[0])
		require.Equal(t, []any{durable.ResponseReceived, "late", int64(40), int64(1)}, []any{e.State, string(e.Body),
			e.ReceivedMs, e.DeliveredMs})
		require.Equal(t, "first", string(f.exchange(t, k, id[1]).Body))
		require.Equal(t, durable.ExchangeFailed, f.exchange(t, k, id[2]).State)
	},
	"an exchange moves on from the state that the caller saw": func(t *testing.T, f *fixture) {
		k, id := f.jobs(t, 1)
		f.record(t, answered(pending(k, id[0], 10, 20)))
		e := f.exchange(t, k, id[0])
		e.Fail(30, "no result")
		moved, err := f.MoveExchange(f.ctx, e, durable.DeliveredReceiver)
		require.NoError(t, err)
		require.True(t, moved)
		e.Answered(40)
		moved, err = f.MoveExchange(f.ctx, e, durable.DeliveredReceiver)
		require.NoError(t, err)
		require.False(t, moved)
		require.Equal(t, durable.ExchangeFailed, f.exchange(t, k, id[0]).State)
		require.Equal(t, "no result", f.exchange(t, k, id[0]).Reason)
	},
	"a reply that is delivered ends its exchange": func(t *testing.T, f *fixture) {
		k, id := f.jobs(t, 2)
		f.record(t, answered(answer(k, id[0], 1000, true, "x")))
		require.False(t, f.exchange(t, k, id[0]).State == durable.ResponseDelivered)
		reply := delivered(k, id[1], 1, 2000)
		reply.ReplyTo = durable.ExchangeKey{ConsumerNo: k, ID: id[0]}
		f.record(t, reply)
		e := f.exchange(t, k, id[0])
		require.Equal(t, durable.ResponseDelivered, e.State)
		require.EqualValues(t, 2000, e.EndedMs)
		require.EqualValues(t, durable.Never, e.DueMs)
	},
	"work is found by consumer and time": func(t *testing.T, f *fixture) {
		k, id := f.jobs(t, 4)
		f.record(t, answered(pending(k, id[0], 300, 900)), answered(pending(k, id[1], 200, 900)),
			answered(answer(k, id[2], 100, true, "x")), answered(answer(k+1, id[3], 100, false, "x")))
		no, due, err := f.NextWork(f.ctx, 0)
		require.NoError(t, err)
		require.Equal(t, k, no)
		require.EqualValues(t, 1, due, "a reply is due at once")
		no, due, err = f.NextWork(f.ctx, k)
		require.NoError(t, err)
		require.Equal(t, k+1, no)
		require.EqualValues(t, durable.Never, due)
		no, _, err = f.NextWork(f.ctx, k+1)
		require.NoError(t, err)
		require.Zero(t, no)
		work, err := f.DueWork(f.ctx, k, 250, 10)
		require.NoError(t, err)
		require.Len(t, work, 2)
		require.Equal(t, id[2], work[0].ID)
		require.True(t, work[0].GoesBack)
		require.Equal(t, "http://x/1", work[1].URL)
		require.NoError(t, f.DelayWork(f.ctx, k, durable.DeliveredReceiver, []ident.ID{id[1], id[2]}, 700, 1))
		e := f.exchange(t, k, id[1])
		require.EqualValues(t, 700, e.DueMs)
		require.Equal(t, 1, e.Tries)
		require.EqualValues(t, 1, f.exchange(t, k, id[2]).DueMs, "it is in another state")
	},
	"the body of a response is dropped at its time": func(t *testing.T, f *fixture) {
		k, id := f.jobs(t, 1)
		e := &durable.Exchange{ConsumerNo: k, ID: id[0], Status: 200, DeliveredMs: 1, KeepMs: 50, Body: []byte("x")}
		e.Answered(100)
		f.record(t, answered(e))
		require.EqualValues(t, 150, f.exchange(t, k, id[0]).DueMs)
		require.NoError(t, f.DropResponses(f.ctx, k, id, 149))
		require.Equal(t, "x", string(f.exchange(t, k, id[0]).Body))
		require.NoError(t, f.DropResponses(f.ctx, k, id, 150))
		got := f.exchange(t, k, id[0])
		require.Empty(t, got.Body)
		require.Equal(t, durable.ResponseReceived, got.State)
		require.Equal(t, durable.Dropped, got.Reason)
	},
	"a message stays while its exchange is not over": func(t *testing.T, f *fixture) {
		ch, ks := f.channel(t, "c", 1)
		in := f.messages(ch, 3)
		f.insert(t, in...)
		k := ks[0].No
		f.record(t, answered(pending(k, in[0].ID, 10, 20)), answered(answer(k, in[1].ID, 10, true, "x")),
			answered(answer(k, in[2].ID, 10, false, "x")))
		purge := durable.Purge{ChannelNo: ch.No, Consumers: []*durable.Consumer{&ks[0]}, Through: in[2].ID, Limit: 100}
		out, err := f.Purge(f.ctx, purge)
		require.NoError(t, err)
		require.Equal(t, 1, out.Removed)
		all, err := f.Exchanges(f.ctx, k, ids(in))
		require.NoError(t, err)
		require.Len(t, all, 2, "the response goes with its message")
		e := f.exchange(t, k, in[0].ID)
		e.Fail(30, "x")
		_, err = f.MoveExchange(f.ctx, e, durable.DeliveredReceiver)
		require.NoError(t, err)
		purge.DeadBeforeMs = 1000
		out, err = f.Purge(f.ctx, purge)
		require.NoError(t, err)
		require.Equal(t, 2, out.Removed, "what no producer took is as old as a dead letter")
	},
	"the settings of a producer stay until they are changed": func(t *testing.T, f *fixture) {
		set := func(to string) func(string) (string, error) { return func(string) (string, error) { return to, nil } }
		p, _, err := f.PutProducer(f.ctx, durable.Put{ID: "p", NewToken: "t", Settings: set("one")})
		require.NoError(t, err)
		require.Equal(t, "one", p.Settings)
		p, _, err = f.PutProducer(f.ctx, durable.Put{ID: "p", Name: ptr("P")})
		require.NoError(t, err)
		require.Equal(t, "one", p.Settings)
		changes, err := f.Changes(f.ctx, 0)
		require.NoError(t, err)
		require.Equal(t, "one", changes.Producers[0].Settings)
		gone, err := f.DeleteProducer(f.ctx, durable.Put{ID: "p"})
		require.NoError(t, err)
		require.Empty(t, gone.Settings)
	},
}
