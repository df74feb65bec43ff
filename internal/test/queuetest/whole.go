package queuetest

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/redisq"
)

func hintReachesSubscribers(t *testing.T, s Server) {
	ctx, cancel := context.WithCancel(context.Background())
	q := s.Queue(100)
	got := make(chan []uint32, 1000)
	ended := make(chan error, 1)
	go func() {
		ended <- q.Subscribe(ctx, func(consumers []uint32) { got <- consumers })
	}()
	// Hints before the subscription is active are lost, so the test repeats them.
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(10 * time.Second)
	for received := false; !received; {
		select {
		case <-tick.C:
			require.NoError(t, s.Queue(100).Notify(ctx, []uint32{1, 77, 1 << 31}))
		case hint := <-got:
			require.Equal(t, []uint32{1, 77, 1 << 31}, hint)
			received = true
		case <-deadline:
			t.Fatal("no hint arrived")
		}
	}
	require.NoError(t, s.Client.Publish(ctx, s.Prefix+"hint", "abc").Err(), "a foreign message on the channel")
	many := make([]uint32, 1500)
	require.NoError(t, q.Notify(ctx, many))
	for sum := 0; sum < len(many); {
		select {
		case hint := <-got:
			if len(hint) > 3 {
				sum += len(hint)
			}
		case <-deadline:
			t.Fatal("a large hint did not arrive")
		}
	}
	cancel()
	select {
	case err := <-ended:
		require.NoError(t, err)
	case <-time.After(10 * time.Second):
		t.Fatal("Subscribe goes on after its context ended")
	}
}

func keysShareSlot(t *testing.T, s Server) {
	q := s.Queue(100)
	slots := map[uint16]bool{}
	for _, c := range []uint32{0, 1, 42, 1<<32 - 1} {
		keys := q.Keys(c)
		require.Len(t, keys, 5)
		for _, key := range keys {
			require.Equal(t, slot(keys[0]), slot(key), key)
			require.Equal(t, 1, strings.Count(key, "{"))
		}
		slots[slot(keys[0])] = true
	}
	require.Len(t, slots, 4, "consumers spread")
}

// slot is the Redis Cluster slot of a key: CRC16 (XMODEM) of its hash tag.
func slot(key string) uint16 {
	if _, tail, ok := strings.Cut(key, "{"); ok {
		if tag, _, ok := strings.Cut(tail, "}"); ok && tag != "" {
			key = tag
		}
	}
	var crc uint16
	for _, b := range []byte(key) {
		crc ^= uint16(b) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
	}
	return crc % 16384
}

// The embedded server sorts a whole set per call. The small window keeps most of the backlog
// outside of it.
func manyJobsDrain(t *testing.T, s Server) {
	ctx := context.Background()
	const n, window = 40_000, 2_000
	q := s.Queue(window)
	next, spills := 0, int64(0)
	refill := func() {
		for next < n {
			// One batch at a time, as a scan reads pages.
			js := jobs(next, min(redisq.MaxBatch, n-next), 0)
			got := put(t, q, js, redisq.Recovered)
			if got.FirstSpilled >= 0 {
				next += got.FirstSpilled
				return
			}
			next += len(js)
		}
		_, err := q.ReplaceSpilled(ctx, consumer, -1, spills)
		require.NoError(t, err)
	}
	got := put(t, q, jobs(0, redisq.MaxBatch, 0), redisq.Fresh)
	require.Equal(t, redisq.MaxBatch, got.Added)
	for claimed := 0; claimed < n; {
		c := claim(t, q, redisq.MaxBatch, never)
		require.LessOrEqual(t, c.Ready, window)
		if c.Ready < window/4 {
			refill()
		}
		ids := make([]ident.ID, len(c.Leases))
		for i, l := range c.Leases {
			require.Equal(t, at(claimed+i), l.ID)
			ids[i] = l.ID
		}
		claimed += len(ids)
		removed, err := q.Ack(ctx, consumer, ids)
		require.NoError(t, err)
		require.Equal(t, len(ids), removed)
	}
	require.True(t, reclaim(t, q, 0).Empty)
	check(t, s, q)
}
