package fanout

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
)

// What waits for Redis is bounded in bytes by the cache alone.
func TestMessagesThatWaitForFanOutHoldNoPayload(t *testing.T) {
	f, _ := oneToFanOut(t, absentQueue{})
	before := liveHeap()
	for range 100 {
		f.Add([]*durable.Message{{ID: f.node.(*slowNode).IDs().Next(), ChannelNo: 1, Audience: 1,
			Payload: make([]byte, 1<<20)}})
	}
	require.Equal(t, 101, f.Pending())
	require.Less(t, liveHeap()-before, int64(16<<20))
	runtime.KeepAlive(f)
}

// An absentQueue is one that is never asked.
type absentQueue struct{ Queue }

func (absentQueue) Incarnation() uint64 { return 1 }

// liveHeap returns the bytes in use after a collection.
func liveHeap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
