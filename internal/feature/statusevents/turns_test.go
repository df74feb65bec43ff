package statusevents

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/model/policy"
)

// A crowd is a world with producers 1 to n, which have reply URLs. A publish takes delay.
type crowd struct {
	*world
	of     map[uint32]int // events that no batch has
	delay  time.Duration
	broken map[uint32]bool // their channels take nothing
	under  map[uint32]bool // a publish is under way
	got    map[uint32][]string
	order  []uint32 // of the publishes
	most   int      // publishes at once
	twice  bool     // one producer had two publishes at once
	lost   uint32   // another broker looks after it
}

func newCrowd(t *testing.T, n uint32) (*crowd, *Collector) {
	record, err := policy.MergeSender("", map[string]string{"statusEvents": "all", "replyUrl": "http://example.com/"})
	require.NoError(t, err)
	w := &crowd{world: &world{changes: durable.Changes{Version: 1}}, of: map[uint32]int{}, broken: map[uint32]bool{},
		under: map[uint32]bool{}, got: map[uint32][]string{}}
	for no := uint32(1); no <= n; no++ {
		w.changes.Producers = append(w.changes.Producers, durable.Producer{No: no, ID: ident.ID{byte(no)}.String(),
			Version: 1, Settings: record})
	}
	c := catalogue.New(w, slog.New(slog.DiscardHandler))
	require.NoError(t, c.Refresh(t.Context()))
	ids := ident.NewGenerator(1, func() int64 { return time.Now().UnixMilli() })
	return w, New(Options{Store: w, Catalogue: c, Owns: w.owns, IDs: ids.Next, Publish: w.publish, Ensure: w.ensure,
		Log: slog.New(slog.DiscardHandler)})
}

func (w *crowd) owns(no uint32) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return no != w.lost
}

func (w *crowd) NextStatusProducer(_ context.Context, after uint32) (uint32, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for no := after + 1; int(no) <= len(w.changes.Producers); no++ {
		if w.of[no] > 0 {
			return no, nil
		}
	}
	return 0, nil
}

func (w *crowd) StatusEvents(_ context.Context, no uint32, limit int) ([]durable.StatusEvent, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return make([]durable.StatusEvent, min(limit, w.of[no])), nil
}

func (w *crowd) BatchStatus(_ context.Context, b durable.StatusBatch, events []durable.StatusEvent) (bool, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.of[b.ProducerNo] -= len(events)
	w.batches = append(w.batches, b)
	return true, nil
}

func (w *crowd) StatusBatches(ctx context.Context, after ident.ID, limit int) ([]durable.StatusBatch, error) {
	out, err := w.world.StatusBatches(ctx, after, limit)
	return out[:min(limit, len(out))], err
}

func (w *crowd) publish(ctx context.Context, m *durable.Message) error {
	no := m.ChannelNo - 100
	w.mu.Lock()
	w.twice = w.twice || w.under[no]
	w.under[no] = true
	w.most = max(w.most, len(w.under))
	w.mu.Unlock()
	time.Sleep(w.delay)
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.under, no)
	if w.broken[no] || ctx.Err() != nil {
		return errors.New("not now")
	}
	w.got[no] = append(w.got[no], m.Key)
	w.order = append(w.order, no)
	return nil
}

func TestTheManyBatchesOfSomeProducersDelayNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const busy, light = atOnce, atOnce + 1
		w, c := newCrowd(t, light)
		w.delay = time.Second / 10
		for no := uint32(1); no <= busy; no++ {
			w.of[no] = 2 * PerRound * BatchEvents
		}
		w.of[light] = 1
		require.NoError(t, c.round(t.Context()))
		require.Equal(t, atOnce, w.most)
		require.Contains(t, w.order[:light], uint32(light), "one batch of each is before the second one of any")
		require.Len(t, w.order, busy*PerRound+1)
		require.Equal(t, PerRound*BatchEvents, w.of[1], "the rest is left to the next round")
	})
}

func TestAChannelThatTakesNothingHoldsUpTheBatchesOfItsProducerOnly(t *testing.T) {
	w, c := newCrowd(t, 3)
	w.broken[2] = true
	for no := range uint32(3) {
		w.of[no+1] = 2 * BatchEvents
	}
	for range 3 {
		require.ErrorContains(t, c.round(t.Context()), "not now")
		require.Len(t, w.batches, 1)
		require.Equal(t, BatchEvents, w.of[2], "there is no other batch before the first one is published")
	}
	require.Len(t, w.got[1], 2)
	require.Len(t, w.got[3], 2)
	first := key(&w.batches[0])
	w.broken[2] = false
	require.NoError(t, c.round(t.Context()))
	require.Equal(t, first, w.got[2][0])
	require.Len(t, w.got[2], 2)
}

func TestBatchesOfAProducerArePublishedOneAtATimeInTheirOrderAndOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, c := newCrowd(t, 2)
		w.delay = 3 * time.Second
		var want []string
		for range 2*leftovers + 3 { // of brokers that died
			b := durable.StatusBatch{ID: c.o.IDs(), ProducerNo: 1, Body: []byte("{}")}
			w.batches = append(w.batches, b)
			want = append(want, key(&b))
		}
		w.of[1] = 2*BatchEvents + 1
		for range 2 {
			require.NoError(t, c.round(t.Context()))
		}
		require.False(t, w.twice)
		require.Len(t, w.got[1], len(want)+3)
		require.Equal(t, want, w.got[1][:len(want)])
		require.IsIncreasing(t, w.got[1])
		require.Empty(t, w.batches)
		require.Zero(t, w.of[1])
	})
}

func TestABrokerThatStopsPublishesTheBatchesUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, c := newCrowd(t, atOnce+1)
		w.delay = 1900 * time.Millisecond
		for no := range uint32(atOnce + 1) {
			w.of[no+1] = 2 * BatchEvents
		}
		ctx, stop := context.WithCancel(t.Context())
		var run sync.WaitGroup
		run.Go(func() { c.Run(ctx) })
		time.Sleep(Pause + time.Second)
		w.mu.Lock()
		require.Len(t, w.under, atOnce)
		w.mu.Unlock()
		stop()
		run.Wait()
		require.Empty(t, w.batches, "what was begun is published and removed")
		require.Len(t, w.order, atOnce)
		left := 0
		for _, n := range w.of {
			left += n
		}
		require.Equal(t, (atOnce+2)*BatchEvents, left, "what was not begun stays in the store")
	})
}

func TestAProducerThatAnotherBrokerTookOverWhileItWaitedIsLeftToThat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, c := newCrowd(t, atOnce+1)
		w.delay = time.Second
		for no := range uint32(atOnce + 1) {
			w.of[no+1] = 1
		}
		var run sync.WaitGroup
		run.Go(func() { _ = c.round(t.Context()) })
		synctest.Wait()
		w.mu.Lock()
		for no := range uint32(atOnce + 1) {
			if !w.under[no+1] {
				w.lost = no + 1
			}
		}
		require.NotZero(t, w.lost)
		w.mu.Unlock()
		run.Wait()
		require.Empty(t, w.got[w.lost])
		require.Equal(t, 1, w.of[w.lost])
	})
}

func TestARoundBeginsEachSecondHoweverLongItTakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, c := newCrowd(t, 1)
		w.delay = Pause * 9 / 10 / PerRound
		w.of[1] = 4 * PerRound * BatchEvents
		ctx, stop := context.WithCancel(t.Context())
		var run sync.WaitGroup
		run.Go(func() { c.Run(ctx) })
		time.Sleep(5 * Pause)
		stop()
		run.Wait()
		require.Zero(t, w.of[1], "5000 events a second")
		require.Len(t, w.order, 4*PerRound)
	})
}
