package push

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/redisq"
)

func large(n int64, size int) *durable.Message {
	return &durable.Message{ID: ident.AtMillis(n), Payload: make([]byte, size)}
}

func TestLargePayloadsAreCountedOnceAndBounded(t *testing.T) {
	const mib = 1 << 20
	h := &largePayloads{most: 16 * mib}
	a, b, c := &lane{no: 1}, &lane{no: 2}, &lane{no: 3}
	m := large(1, 4*mib)
	for _, l := range []*lane{a, b, c, a} {
		same := *m // each lane has loaded its own
		got, ok := h.take(l, &same)
		require.True(t, ok)
		require.Same(t, h.byID[m.ID].msg, got, "and all hold the same")
	}
	require.EqualValues(t, 4*mib, h.bytes)
	require.EqualValues(t, 4*mib, a.large, "the first is charged")

	_, ok := h.take(a, large(2, 4*mib))
	require.True(t, ok)
	_, ok = h.take(a, large(3, 4*mib))
	require.False(t, ok, "a lane leaves as much as it has")
	require.True(t, a.short.Load())
	_, ok = h.take(b, large(3, 4*mib))
	require.True(t, ok)
	_, ok = h.take(c, large(4, 5*mib))
	require.False(t, ok, "larger than what is left")
	_, ok = h.take(c, large(5, largeFrom-1))
	require.True(t, ok, "small ones always")
	require.EqualValues(t, 12*mib, h.bytes)

	require.Empty(t, h.give(a, m), "others still hold it")
	require.EqualValues(t, 4*mib, a.large)
	require.EqualValues(t, 8*mib, b.large, "and the next one is charged")
	require.Empty(t, h.give(a, m))
	require.Empty(t, h.give(b, m))
	require.EqualValues(t, 4*mib, c.large)
	require.ElementsMatch(t, []*lane{a, c}, h.give(c, m))
	require.False(t, a.short.Load())
	require.False(t, c.short.Load())
	require.Empty(t, h.give(b, large(3, 4*mib)))
	require.Empty(t, h.give(a, large(2, 4*mib)))
	require.Zero(t, h.bytes+a.large+b.large+c.large)
	require.Empty(t, h.byID)

	_, ok = h.take(a, large(6, 100*mib))
	require.True(t, ok, "alone, the largest goes through")
}

// Of jobs with large payloads no more are under way than have room. The others wait
// in Redis, uncharged, and go out as the consumer answers; an outcome that waits for
// the store holds no payload.
func TestLargePayloadsGoOutAsThereIsRoom(t *testing.T) {
	const jobs, size = 5, 2 * largeFrom
	r := newLossRig(t)
	r.payload, r.large.most = bytes.Repeat([]byte("x"), size), 2*size-1
	offered := make([]redisq.Job, jobs)
	ids := make([]ident.ID, jobs)
	for i := range offered {
		ids[i] = ident.AtMillis(int64(i + 1))
		offered[i] = redisq.Job{ID: ids[i]}
	}
	_, err := r.redisq.Enqueue(t.Context(), 1, offered, redisq.Recovered)
	require.NoError(t, err)
	r.Learn(pushConsumer())
	for i := range jobs {
		r.eventually(func() bool { return r.posts() == i+1 })
		require.EqualValues(t, size, r.heldBytes())
		r.eventually(func() bool { // what has no room is back in Redis
			leased := 0
			for _, s := range r.standings(ids) {
				if s.State == redisq.Leased {
					leased++
				}
			}
			return leased == 1
		})
		require.Equal(t, i+1, r.posts(), "nothing goes out before there is room")
		r.answer <- 204
	}
	r.eventually(func() bool { return r.heldBytes() == 0 && r.recordedJobs() == jobs })
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, o := range r.recorded {
		require.Equal(t, durable.OutcomeDelivered, o.Kind)
		require.Equal(t, 1, o.Attempts, "giving back is not charged")
	}
}

func (r *lossRig) heldBytes() int64 {
	r.large.mu.Lock()
	defer r.large.mu.Unlock()
	return r.large.bytes
}

func (r *lossRig) recordedJobs() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.recorded)
}
