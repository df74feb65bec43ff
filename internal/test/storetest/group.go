package storetest

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
)

// limits is the Limits of a Put that sets the bound of a group.
func limits(record string, most int) func(string) (string, int, error) {
	return func(string) (string, int, error) { return record, most, nil }
}

func (f *fixture) group(t *testing.T, id string, most int) durable.Group {
	t.Helper()
	g, created, err := f.PutGroup(f.ctx, durable.Put{ID: id, Limits: limits("record", most)})
	require.NoError(t, err)
	require.True(t, created)
	return g
}

// joins puts a channel into a group.
func (f *fixture) joins(channel, group string) (durable.Channel, error) {
	ch, _, err := f.PutChannel(f.ctx, durable.Put{ID: channel, NewToken: "t", Group: &group})
	return ch, err
}

var groupTests = map[string]func(*testing.T, *fixture){
	"a group is created, changed under conditions, and deleted once no channel carries it": func(t *testing.T,
		f *fixture) {
		g := f.group(t, "g", 3)
		require.Equal(t, durable.Group{No: 1, ID: "g", Name: "g", MaxChannels: 3, Settings: "record",
			ChangedAt: g.ChangedAt, Version: g.Version}, g)
		same, created, err := f.PutGroup(f.ctx, durable.Put{ID: "g", Limits: limits("record", 3)})
		require.NoError(t, err)
		require.False(t, created)
		require.Equal(t, g, same)
		_, _, err = f.PutGroup(f.ctx, durable.Put{ID: "g", Name: ptr("x"), UnmodifiedSince: g.ChangedAt.Add(-time.Hour)})
		require.ErrorIs(t, err, durable.ErrPrecondition)
		next, _, err := f.PutGroup(f.ctx, durable.Put{ID: "g", Name: ptr("x"), Revision: g.ChangedAt})
		require.NoError(t, err)
		require.Equal(t, "record", next.Settings, "what the form lacks stays")
		require.Greater(t, next.ChangedAt.Unix(), g.ChangedAt.Unix())
		c, err := f.Changes(f.ctx, g.Version)
		require.NoError(t, err)
		require.Equal(t, []durable.Group{next}, c.Groups)

		_, err = f.joins("c", "g")
		require.NoError(t, err)
		_, err = f.DeleteGroup(f.ctx, durable.Put{ID: "g"})
		require.ErrorIs(t, err, durable.ErrHasChannels)
		_, err = f.DeleteChannel(f.ctx, durable.Put{ID: "c"})
		require.NoError(t, err)
		_, err = f.DeleteGroup(f.ctx, durable.Put{ID: "g", Revision: g.ChangedAt})
		require.ErrorIs(t, err, durable.ErrPrecondition)
		gone, err := f.DeleteGroup(f.ctx, durable.Put{ID: "g"})
		require.NoError(t, err)
		require.True(t, gone.Deleted)
		_, err = f.DeleteGroup(f.ctx, durable.Put{ID: "g"})
		require.ErrorIs(t, err, durable.ErrNotFound)
		again := f.group(t, "g", 0)
		require.EqualValues(t, 2, again.No)
	},
	"a channel carries a group that exists, with room for it": func(t *testing.T, f *fixture) {
		_, err := f.joins("a", "g")
		require.ErrorIs(t, err, durable.ErrNoGroup)
		f.group(t, "g", 2)
		f.group(t, "h", 1)
		for _, id := range []string{"a", "b"} {
			ch, err := f.joins(id, "g")
			require.NoError(t, err)
			require.Equal(t, "g", ch.Group)
		}
		_, err = f.joins("c", "g")
		require.ErrorIs(t, err, durable.ErrGroupFull)
		_, _, err = f.PutChannel(f.ctx, durable.Put{ID: "c", NewToken: "t", Exists: ptr(true)})
		require.ErrorIs(t, err, durable.ErrPrecondition, "the refused channel does not exist")
		kept, _, err := f.PutChannel(f.ctx, durable.Put{ID: "a", Name: ptr("renamed")})
		require.NoError(t, err)
		require.Equal(t, "g", kept.Group, "a PUT without a group keeps it")
		_, err = f.joins("b", "h")
		require.NoError(t, err)
		_, err = f.joins("a", "h")
		require.ErrorIs(t, err, durable.ErrGroupFull)
		_, err = f.joins("c", "g")
		require.NoError(t, err, "b has left")

		_, _, err = f.PutGroup(f.ctx, durable.Put{ID: "g", Limits: limits("record", 1)})
		require.NoError(t, err, "a bound below the number takes no channel away")
		_, err = f.joins("d", "g")
		require.ErrorIs(t, err, durable.ErrGroupFull)
		_, err = f.joins("a", "g")
		require.NoError(t, err, "it carries the group")
		out, err := f.joins("c", "")
		require.NoError(t, err)
		require.Empty(t, out.Group)
		_, err = f.DeleteChannel(f.ctx, durable.Put{ID: "a"})
		require.NoError(t, err)
		_, err = f.joins("d", "g")
		require.NoError(t, err, "one that was deleted does not count")
	},
	"of many brokers that fill a group no two take the same place": func(t *testing.T, f *fixture) {
		const most, tries = 3, 12
		f.group(t, "g", most)
		var wg sync.WaitGroup
		var in, full atomic.Int32
		for i := range tries {
			wg.Go(func() {
				switch _, err := f.joins(fmt.Sprintf("c%d", i), "g"); {
				case err == nil:
					in.Add(1)
				case errors.Is(err, durable.ErrGroupFull):
					full.Add(1)
				}
			})
		}
		wg.Wait()
		require.EqualValues(t, most, in.Load())
		require.EqualValues(t, tries-most, full.Load())
	},
	"no message is stored in a channel of a paused group": func(t *testing.T, f *fixture) {
		f.group(t, "g", 0)
		ch, _ := f.channel(t, "c", 1)
		free, _ := f.channel(t, "free", 1)
		_, err := f.joins("c", "g")
		require.NoError(t, err)
		f.insert(t, f.message(ch))
		g, changed, err := f.SetGroupPaused(f.ctx, "g", true)
		require.NoError(t, err)
		require.True(t, changed && g.Paused)
		_, changed, err = f.SetGroupPaused(f.ctx, "g", true)
		require.NoError(t, err)
		require.False(t, changed)
		refused := func(ch durable.Channel) {
			t.Helper()
			require.ErrorIs(t, f.Insert(f.ctx, f.node, []*durable.Message{f.message(ch)})[0], durable.ErrStale)
		}
		refused(ch)
		f.insert(t, f.message(free))
		c, err := f.Changes(f.ctx, 0)
		require.NoError(t, err)
		require.True(t, c.Channels[0].GroupPaused && !c.Channels[0].Paused && c.Channels[0].Closed())

		// Both pauses hold, each until its own end.
		paused, _, err := f.SetChannelPaused(f.ctx, "c", true)
		require.NoError(t, err)
		require.True(t, paused.Paused && paused.GroupPaused)
		_, _, err = f.SetGroupPaused(f.ctx, "g", false)
		require.NoError(t, err)
		refused(ch)
		_, _, err = f.SetGroupPaused(f.ctx, "g", true)
		require.NoError(t, err)
		resumed, _, err := f.SetChannelPaused(f.ctx, "c", false)
		require.NoError(t, err)
		require.True(t, !resumed.Paused && resumed.GroupPaused)
		refused(ch)

		in, err := f.joins("free", "g")
		require.NoError(t, err)
		require.True(t, in.GroupPaused, "a channel that joins is paused with it")
		refused(free)
		_, err = f.joins("free", "")
		require.NoError(t, err)
		f.insert(t, f.message(free))
		_, _, err = f.SetGroupPaused(f.ctx, "g", false)
		require.NoError(t, err)
		f.insert(t, f.message(ch))
		_, _, err = f.SetGroupPaused(f.ctx, "none", true)
		require.ErrorIs(t, err, durable.ErrNotFound)
	},
}
