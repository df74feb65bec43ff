package storetest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/ident"
)

// A Server is an empty store whose server's clock jumps, and whose tables a test changes behind the
// back of its brokers.
type Server struct {
	Store *durable.Store
	Jump  func(by time.Duration)               // sets the clock to by from the right time
	Exec  func(t *testing.T, statement string) // runs a statement of a person
}

// RunClock checks what durable.Store promises about a clock that goes back, and a history that does.
// The subtests do not run in parallel: they may share a server.
func RunClock(t *testing.T, open func(*testing.T) Server) {
	for _, group := range []map[string]func(*testing.T, *clocked){clockTests, historyTests} {
		for name, test := range group {
			t.Run(name, func(t *testing.T) {
				s := open(t)
				s.Jump(0)
				test(t, &clocked{fixture: newFixture(t, s.Store, nil), Server: s})
			})
		}
	}
}

// A clocked is a fixture on a Server.
type clocked struct {
	*fixture
	Server
}

// renew renews a lease, as a broker does that knows no time.
func (f *clocked) renew(t *testing.T, lease durable.NodeLease) durable.NodeLease {
	t.Helper()
	lease, err := f.RenewNode(f.ctx, lease, time.Hour)
	require.NoError(t, err)
	return lease
}

func (f *clocked) now(t *testing.T) int64 {
	t.Helper()
	ms, err := f.NowMs(f.ctx)
	require.NoError(t, err)
	return ms
}

// insertAt stores a message with an ID of that time.
func (f *clocked) insertAt(ch durable.Channel, ms int64) error {
	m := f.message(ch)
	m.ID = ident.NewGenerator(f.node.No, func() int64 { return ms }).Next()
	return f.Insert(f.ctx, f.node, []*durable.Message{m})[0]
}

var clockTests = map[string]func(*testing.T, *clocked){
	"no insert comes behind a floor that was stored, whatever the clock does": func(t *testing.T, f *clocked) {
		ch, _ := f.channel(t, "c", 1)
		f.Jump(time.Second)
		f.node = f.renew(t, f.node)
		floor := f.node.Clock.FloorMs
		for _, by := range []time.Duration{-6 * time.Second, -time.Hour, -24 * 365 * time.Hour} {
			f.Jump(by)
			require.GreaterOrEqual(t, f.now(t), floor)
			require.ErrorIs(t, f.insertAt(ch, floor-durable.MaxIDAge.Milliseconds()-1), durable.ErrStale)
			require.NoError(t, f.insertAt(ch, f.now(t)))
			f.node = f.renew(t, f.node)
			require.GreaterOrEqual(t, f.node.Clock.FloorMs, floor)
			floor = f.node.Clock.FloorMs
			require.ErrorIs(t, f.insertAt(ch, floor-durable.MaxIDAge.Milliseconds()-1), durable.ErrStale)
			require.NoError(t, f.insertAt(ch, f.now(t)))
		}
	},
	"a step back is counted once, and the clock goes on": func(t *testing.T, f *clocked) {
		before := f.renew(t, f.node)
		require.Zero(t, before.Clock.Steps)
		before.PassedMs = before.Expires.Add(-time.Hour).UnixMilli()
		f.Jump(-6 * time.Second)
		after := f.renew(t, before)
		require.EqualValues(t, 1, after.Clock.Steps)
		require.InDelta(t, 6000, after.Clock.AheadMs, 1500)
		require.False(t, after.Expires.Before(before.Expires))
		other, err := f.LeaseNode(f.ctx, "other", time.Hour)
		require.NoError(t, err)
		require.EqualValues(t, 1, other.Clock.Steps)
		f.Jump(-3 * time.Second) // three seconds go by
		again := f.renew(t, after)
		require.EqualValues(t, 1, again.Clock.Steps)
		require.GreaterOrEqual(t, again.Clock.FloorMs, after.Clock.FloorMs+2900)
		require.Less(t, again.Clock.AheadMs, after.Clock.AheadMs, "it falls back to the server's")
		require.Equal(t, before.Clock.History, again.Clock.History)
	},
	"a time that a broker knows to have passed does not come again": func(t *testing.T, f *clocked) {
		passed := f.node
		passed.PassedMs = f.now(t) + 5000
		passed = f.renew(t, passed)
		require.GreaterOrEqual(t, passed.Clock.FloorMs, passed.PassedMs)
		require.GreaterOrEqual(t, f.now(t), passed.PassedMs)
	},
	"a clock that is put right after it went far back leads to no other time": func(t *testing.T, f *clocked) {
		ch, _ := f.channel(t, "c", 1)
		f.Jump(-10 * 365 * 24 * time.Hour)
		f.node = f.renew(t, f.node)
		require.NoError(t, f.insertAt(ch, f.now(t)))
		f.Jump(0)
		require.InDelta(t, time.Now().UnixMilli(), f.now(t), 10_000)
		f.node = f.renew(t, f.node)
		require.InDelta(t, time.Now().UnixMilli(), f.node.Clock.FloorMs, 10_000)
		f.Jump(20 * time.Second)
		f.node = f.renew(t, f.node)
		require.Zero(t, f.node.Clock.AheadMs)
		require.NoError(t, f.insertAt(ch, f.now(t)))
	},
	"a store with watermarks and without a clock begins behind none": func(t *testing.T, f *clocked) {
		f.Exec(t, "DELETE FROM clock")
		f.mark(t, map[uint32]ident.ID{1: ident.AtMillis(time.Now().Add(time.Hour).UnixMilli()), 2: ident.AtMillis(1)})
		lease, err := f.LeaseNode(f.ctx, "new", time.Hour)
		require.NoError(t, err)
		require.Greater(t, lease.Clock.FloorMs, time.Now().Add(time.Hour).UnixMilli()-1000)
	},
}

// keep copies the tables of the clock and the nodes, as a backup does; goBack restores them.
func (f *clocked) keep(t *testing.T, tables ...string) (goBack func()) {
	for _, table := range tables {
		f.Exec(t, "DROP TABLE IF EXISTS kept_"+table)
		f.Exec(t, "CREATE TABLE kept_"+table+" AS SELECT * FROM "+table)
	}
	return func() {
		for _, table := range tables {
			f.Exec(t, "DELETE FROM "+table)
			f.Exec(t, "INSERT INTO "+table+" SELECT * FROM kept_"+table)
		}
	}
}

var historyTests = map[string]func(*testing.T, *clocked){
	"a store that went back has one new name": func(t *testing.T, f *clocked) {
		a := f.renew(t, f.node)
		b, err := f.LeaseNode(f.ctx, "b", time.Hour)
		require.NoError(t, err)
		for restored := range 3 {
			goBack := f.keep(t, "clock", "nodes")
			f.Jump(time.Duration(3*restored+1) * time.Second)
			a, b = f.renew(t, a), f.renew(t, b)
			cutOff := b
			goBack()
			f.Jump(time.Duration(3*restored+2) * time.Second)
			name := a.Clock.History
			a, b = f.renew(t, a), f.renew(t, b)
			require.NotEqual(t, name, a.Clock.History)
			require.Equal(t, a.Clock.History, b.Clock.History)
			f.Jump(time.Duration(3*restored+3) * time.Second)
			a, b = f.renew(t, a), f.renew(t, b)
			require.Equal(t, a.Clock.History, b.Clock.History)
			require.Equal(t, a.Clock.History, f.renew(t, cutOff).Clock.History, "a broker that was cut off notices")
			seen, err := f.CheckHistory(f.ctx, a.Clock)
			require.NoError(t, err)
			require.Equal(t, a.Clock.History, seen.History)
		}
	},
	"a store that went back past the lease of a broker has a new name": func(t *testing.T, f *clocked) {
		goBack := f.keep(t, "clock", "nodes")
		lease, err := f.LeaseNode(f.ctx, "b", time.Hour)
		require.NoError(t, err)
		f.Jump(time.Second)
		lease = f.renew(t, lease)
		goBack()
		_, err = f.RenewNode(f.ctx, lease, time.Hour)
		require.ErrorIs(t, err, durable.ErrStale)
		again, err := f.LeaseNode(f.ctx, "b", time.Hour)
		require.NoError(t, err)
		require.NotEqual(t, lease.Clock.History, again.Clock.History)
	},
	"no watermark of another history is saved": func(t *testing.T, f *clocked) {
		goBack := f.keep(t, "clock", "nodes")
		f.Jump(time.Second)
		seen := f.renew(t, f.node).Clock
		one := []durable.Settled{{ConsumerNo: 1, Through: f.ids.Next()}}
		others, err := f.SaveWatermarks(f.ctx, seen, one)
		require.NoError(t, err)
		require.Empty(t, others)
		require.NoError(t, f.ForgetWatermarks(f.ctx))
		goBack()
		_, err = f.SaveWatermarks(f.ctx, seen, one)
		require.ErrorIs(t, err, durable.ErrStale)
		now, err := f.CheckHistory(f.ctx, seen)
		require.NoError(t, err)
		_, err = f.SaveWatermarks(f.ctx, seen, one)
		require.ErrorIs(t, err, durable.ErrStale)
		f.requireMarks(t, map[uint32]ident.ID{})
		_, err = f.SaveWatermarks(f.ctx, now, one)
		require.NoError(t, err)
	},
	"no receipt of another history is recorded": func(t *testing.T, f *clocked) {
		goBack := f.keep(t, "clock", "nodes")
		f.Jump(time.Second)
		seen := f.renew(t, f.node).Clock
		one := []durable.Receipt{{ID: receiptAt(1, 1), ChannelNo: 1, Message: "m"}}
		require.NoError(t, f.StoreReceipts(f.ctx, seen, nil))
		goBack()
		require.ErrorIs(t, f.StoreReceipts(f.ctx, seen, one), durable.ErrStale)
		require.ErrorIs(t, f.StoreReceipts(f.ctx, seen, nil), durable.ErrStale)
		now, err := f.CheckHistory(f.ctx, seen)
		require.NoError(t, err)
		require.ErrorIs(t, f.StoreReceipts(f.ctx, seen, one), durable.ErrStale)
		got, err := f.Receipts(f.ctx, []durable.ReceiptID{one[0].ID})
		require.NoError(t, err)
		require.Empty(t, got)
		require.NoError(t, f.StoreReceipts(f.ctx, now, one))
	},
	"the row of a lease alone tells that a store went back": func(t *testing.T, f *clocked) {
		goBack := f.keep(t, "nodes")
		f.Jump(time.Second)
		lease := f.renew(t, f.node)
		goBack()
		again := f.renew(t, lease)
		require.NotEqual(t, lease.Clock.History, again.Clock.History)
		require.Equal(t, again.Clock.History, f.renew(t, again).Clock.History)
	},
	"a broker that was stopped notices by what it has seen": func(t *testing.T, f *clocked) {
		goBack := f.keep(t, "clock", "nodes")
		f.Jump(time.Second)
		seen := f.renew(t, f.node).Clock
		goBack()
		now, err := f.CheckHistory(f.ctx, seen)
		require.NoError(t, err)
		require.NotEqual(t, seen.History, now.History)
		same, err := f.CheckHistory(f.ctx, now)
		require.NoError(t, err)
		require.Equal(t, now.History, same.History)
		same, err = f.CheckHistory(f.ctx, durable.Clock{})
		require.NoError(t, err)
		require.Equal(t, now.History, same.History, "one that has seen nothing changes nothing")
	},
	"a number that another broker took is no sign of another history": func(t *testing.T, f *clocked) {
		old, err := f.LeaseNode(f.ctx, "old", time.Millisecond)
		require.NoError(t, err)
		f.Jump(2 * time.Second)
		taken, err := f.LeaseNode(f.ctx, "new", time.Hour)
		require.NoError(t, err)
		require.Equal(t, old.No, taken.No)
		_, err = f.RenewNode(f.ctx, old, time.Hour)
		require.ErrorIs(t, err, durable.ErrStale)
		require.Equal(t, old.Clock.History, f.renew(t, taken).Clock.History)
	},
}
