package reaper

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/ident"
)

// A longChannel is a store in which one channel has messages without end, none of which concerns a
// consumer. Each page of them takes a while.
type longChannel struct {
	*durable.Store
	no    uint32
	pages atomic.Int64
	took  time.Duration
}

func (l *longChannel) Sizes(ctx context.Context, channelNo uint32, after, through ident.ID, limit int) ([]durable.Sized,
	error) {
	if channelNo != l.no {
		return l.Store.Sizes(ctx, channelNo, after, through, limit)
	}
	l.pages.Add(1)
	time.Sleep(l.took)
	page := make([]durable.Sized, limit)
	for i := range page {
		binary.BigEndian.PutUint64(after[4:], binary.BigEndian.Uint64(after[4:])+1) // below the IDs of today
		page[i].ID = after
	}
	return page, nil
}

// replayOf begins a replay of all that a new consumer of a channel may have.
func (r *rig) replayOf(channel, consumer string) (k durable.Consumer, replay durable.Replay) {
	r.t.Helper()
	pull := durable.Pull
	k, _, err := r.store.PutConsumer(r.t.Context(), durable.ConsumerPut{Put: durable.Put{ID: consumer, NewToken: "t"},
		ChannelID: channel, Type: &pull})
	require.NoError(r.t, err)
	replay, err = r.store.CreateReplay(r.t.Context(), durable.Replay{ConsumerNo: k.No, ChannelNo: k.ChannelNo,
		Through: ident.AtMillis(time.Now().UnixMilli())})
	require.NoError(r.t, err)
	return k, replay
}

// Long replays of one channel take their turn, and no more: a replay of another channel goes on as if
// there were one of them.
func TestLongReplaysOfOneChannelDelayNoOtherChannels(t *testing.T) {
	const many = 30
	long := &longChannel{took: 20 * time.Millisecond}
	r := newRig(t, 1000, func(o *Options) {
		long.Store = o.Store.(*durable.Store)
		o.Store = long
	})
	ch, _, err := r.store.PutChannel(t.Context(), durable.Put{ID: "long", NewToken: "t"})
	require.NoError(t, err)
	long.no = ch.No
	for i := range many {
		r.replayOf("long", fmt.Sprint("k", i))
	}
	_, quiet := r.replayOf("c", "quiet")
	require.NoError(t, r.catalogue.Refresh(t.Context()))
	p := &replayer{r.Reaper, map[uint32]*loader{}, map[uint32]uint32{}}
	rounds := 0
	for done := false; !done; rounds++ {
		require.Less(t, rounds, 10)
		before := long.pages.Load()
		clear(r.resting)
		require.NoError(t, p.round(t.Context(), r.catalogue.Replays()))
		require.LessOrEqual(t, time.Duration(long.pages.Load()-before)*long.took, replayFor/2+2*long.took,
			"a half of the round")
		now, err := r.store.Replay(t.Context(), quiet.No)
		require.NoError(t, err)
		done = now.State.Ended()
	}
	began := map[uint32]bool{}
	for range 3 * many {
		clear(r.resting)
		require.NoError(t, p.round(t.Context(), r.catalogue.Replays()))
		for no, l := range p.loaders {
			if len(l.pages) > 0 || !l.settled.IsZero() {
				began[no] = true
			}
		}
		if len(began) == many {
			return
		}
	}
	require.Len(t, began, many, "the replays of the channel have turns, too")
}
