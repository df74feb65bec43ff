package verify

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/ident"
)

func TestPayloadsStayWithinTheirBytes(t *testing.T) {
	p := NewCache(1 << 20)
	g := ident.NewGenerator(1, func() int64 { return 1 })
	for range 20_000 {
		p.Put(&durable.Message{ID: g.Next(), Audience: 1, Payload: make([]byte, 1000)})
	}
	total, names := 0, 0
	for i := range p.shards {
		total += p.shards[i].bytes
		names += len(p.shards[i].order)
	}
	require.LessOrEqual(t, total, 1<<20)
	require.Greater(t, total, 1<<19, "the cache is used")
	require.Less(t, names, 5000)
}

func TestAPayloadLeavesWithItsLastJob(t *testing.T) {
	p := NewCache(1 << 20)
	m := &durable.Message{ID: ident.AtMillis(1), Audience: 2}
	p.Put(m)
	p.SetFresh(m.ID, 7)
	got, gen := p.Get(m.ID)
	require.Same(t, m, got)
	require.Equal(t, uint64(7), gen)
	p.Done(m.ID)
	got, _ = p.Get(m.ID)
	require.NotNil(t, got)
	p.Done(m.ID)
	got, _ = p.Get(m.ID)
	require.Nil(t, got)
	require.Zero(t, p.shard(m.ID).bytes)
}

func TestNamesOfEndedPayloadsDoNotPileUp(t *testing.T) {
	p := NewCache(1 << 30)
	g := ident.NewGenerator(1, func() int64 { return 1 })
	for range 100_000 {
		id := g.Next()
		p.Put(&durable.Message{ID: id, Audience: 1})
		p.Done(id)
	}
	for i := range p.shards {
		require.Less(t, len(p.shards[i].order), 200)
	}
}
