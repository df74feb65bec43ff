package statusevents

import (
	"context"
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

// A crowd is a world with producers 1 to n. The reply URLs of those in hang never answer, others
// after delay.
type crowd struct {
	*world
	of    map[uint32]int // events that no batch has
	hang  map[uint32]bool
	delay time.Duration
	under map[uint32]bool     // a post is under way
	posts map[uint32][]string // that were answered
	tries map[uint32]int
	twice bool   // one producer had two posts at once
	lost  uint32 // another broker looks after it
}

func newCrowd(t *testing.T, n uint32) (*crowd, *Collector) {
	record, err := policy.MergeSender("", map[string]string{"statusEvents": "all", "replyUrl": "http://example.com/"})
	require.NoError(t, err)
	w := &crowd{world: &world{changes: durable.Changes{Version: 1}}, of: map[uint32]int{}, hang: map[uint32]bool{},
		under: map[uint32]bool{}, posts: map[uint32][]string{}, tries: map[uint32]int{}}
	for no := uint32(1); no <= n; no++ {
		w.changes.Producers = append(w.changes.Producers, durable.Producer{No: no, ID: ident.ID{byte(no)}.String(),
			Version: 1, Settings: record})
	}
	c := catalogue.New(w, slog.New(slog.DiscardHandler))
	require.NoError(t, c.Refresh(t.Context()))
	ids := ident.NewGenerator(1, func() int64 { return time.Now().UnixMilli() })
	return w, New(Options{Store: w, Catalogue: c, Owns: w.owns, IDs: ids.Next, Publish: w.publish, Post: w.answer,
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

func (w *crowd) answer(ctx context.Context, p *durable.Producer, id string, _ []byte) error {
	w.mu.Lock()
	w.twice = w.twice || w.under[p.No]
	w.under[p.No] = true
	w.tries[p.No]++
	hang := w.hang[p.No]
	w.mu.Unlock()
	var err error
	if hang {
		<-ctx.Done()
		err = ctx.Err()
	} else {
		time.Sleep(w.delay)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.under[p.No] = false
	if err == nil {
		w.posts[p.No] = append(w.posts[p.No], id)
	}
	return err
}

// heard returns how many batches a producer's reply URL has taken.
func (w *crowd) heard(no uint32) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.posts[no])
}

// add stores events of a producer.
func (w *crowd) add(no uint32, n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.of[no] += n
}

func TestReplyURLsThatHangDelayNoOtherProducersEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const hanging, answering = 20, 21
		w, c := newCrowd(t, answering)
		for no := uint32(1); no <= hanging; no++ {
			w.hang[no] = true
			w.add(no, 3)
		}
		w.add(answering, 1)
		ctx, stop := context.WithCancel(t.Context())
		var run sync.WaitGroup
		run.Go(func() { c.Run(ctx) })
		for i := 1; i <= 60; i++ {
			time.Sleep(Pause + young + time.Second/2)
			require.Equal(t, i, w.heard(answering), "a second, and the time of a place")
			w.add(answering, 1)
			for no := uint32(1); no <= hanging; no++ {
				w.add(no, 1)
			}
		}
		stop()
		run.Wait()
		require.False(t, w.twice)
		require.Len(t, w.posts, 1)
		require.Zero(t, c.places.Taken())
		for no := uint32(1); no <= hanging; no++ {
			require.Greater(t, w.tries[no], 4, "each of the others has its tries")
		}
	})
}

func TestBatchesOfAProducerAreSentOneAtATimeInTheirOrderAndOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, c := newCrowd(t, 2)
		w.delay = 3 * time.Second
		var want []string
		for range 2*leftovers + 3 { // of brokers that died
			b := durable.StatusBatch{ID: c.o.IDs(), ProducerNo: 1, Body: []byte("{}")}
			w.batches = append(w.batches, b)
			want = append(want, key(&b))
		}
		w.add(1, 2*BatchEvents+1)
		for range 200 {
			require.NoError(t, c.round(t.Context()))
			time.Sleep(Pause)
		}
		c.sends.Wait()
		require.NoError(t, c.failure())
		require.False(t, w.twice)
		require.Len(t, w.posts[1], len(want)+3)
		require.Equal(t, want, w.posts[1][:len(want)])
		require.IsIncreasing(t, w.posts[1])
		require.Empty(t, w.batches)
		require.Zero(t, w.of[1])
	})
}

func TestABrokerThatStopsWaitsForTheBatchesUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, c := newCrowd(t, placesAtOnce+1)
		w.delay = 1900 * time.Millisecond
		for no := range uint32(placesAtOnce + 1) {
			w.add(no+1, 2*BatchEvents)
		}
		ctx, stop := context.WithCancel(t.Context())
		var run sync.WaitGroup
		run.Go(func() { c.Run(ctx) })
		time.Sleep(Pause + time.Second)
		require.Equal(t, int64(placesAtOnce), c.places.Taken())
		stop()
		run.Wait()
		require.Empty(t, w.batches, "what was begun is sent and removed")
		require.Len(t, w.posts, placesAtOnce)
		left := 0
		for _, n := range w.of {
			left += n
		}
		require.Equal(t, (placesAtOnce+2)*BatchEvents, left, "what was not begun stays in the store")
	})
}

func TestAProducerThatAnotherBrokerTookOverWhileItWaitedIsLeftToThat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, c := newCrowd(t, placesAtOnce+1)
		for no := range uint32(placesAtOnce + 1) {
			w.hang[no+1] = true
			w.add(no+1, 1)
		}
		require.NoError(t, c.round(t.Context()))
		synctest.Wait()
		lone := uint32(0)
		for no := range uint32(placesAtOnce + 1) {
			if w.tries[no+1] == 0 {
				lone = no + 1
			}
		}
		require.NotZero(t, lone)
		w.mu.Lock()
		w.lost = lone
		w.mu.Unlock()
		c.sends.Wait()
		require.Zero(t, w.tries[lone])
		require.Equal(t, 1, w.of[lone])
	})
}
