package durable_test

import (
	"bytes"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/test/servers"
)

// The batches of a loaded broker: two committers, 256 messages of 1 KiB.
const benchBatch = 256

func BenchmarkInsertMySQL(b *testing.B)  { benchmarkInsert(b, benchMySQL(b), 2) }
func BenchmarkInsertSQLite(b *testing.B) { benchmarkInsert(b, benchSQLite(b), 1) }
func BenchmarkRecordMySQL(b *testing.B)  { benchmarkRecord(b, benchMySQL(b), 2) }
func BenchmarkRecordSQLite(b *testing.B) { benchmarkRecord(b, benchSQLite(b), 1) }
func BenchmarkPurgeMySQL(b *testing.B)   { benchmarkPurge(b, benchMySQL(b)) }
func BenchmarkPurgeSQLite(b *testing.B)  { benchmarkPurge(b, benchSQLite(b)) }
func BenchmarkReadMySQL(b *testing.B)    { benchmarkRead(b, benchMySQL(b)) }
func BenchmarkReadSQLite(b *testing.B)   { benchmarkRead(b, benchSQLite(b)) }

func benchMySQL(b *testing.B) *durable.Store { return openMySQL(b, servers.MySQL(b)) }

func benchSQLite(b *testing.B) *durable.Store {
	s, err := durable.OpenSQLite(b.Context(), b.TempDir(), durable.Options{})
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, s.Close()) })
	require.NoError(b, s.Migrate(b.Context()))
	return s
}

// inParallel runs f b.N times on that many goroutines.
func inParallel(b *testing.B, workers int, f func()) {
	var left atomic.Int64
	left.Store(int64(b.N))
	done := make(chan struct{})
	for range workers {
		go func() {
			defer func() { done <- struct{}{} }()
			for left.Add(-1) >= 0 {
				f()
			}
		}()
	}
	for range workers {
		<-done
	}
}

func benchmarkInsert(b *testing.B, s *durable.Store, workers int) {
	_, _, err := s.PutChannel(b.Context(), durable.Put{ID: "c"})
	require.NoError(b, err)
	node, err := s.LeaseNode(b.Context(), "n", time.Hour)
	require.NoError(b, err)
	ids := ident.NewGenerator(node.No, func() int64 { return time.Now().UnixMilli() })
	b.ReportAllocs()
	b.ResetTimer()
	inParallel(b, workers, func() {
		for _, err := range s.Insert(b.Context(), node, benchMessages(ids, 0)) {
			if err != nil {
				b.Error(err)
			}
		}
	})
	b.ReportMetric(float64(b.N*benchBatch)/b.Elapsed().Seconds(), "messages/s")
}

// benchMessages is one batch for channel 1.
func benchMessages(ids *ident.Generator, audience int) []*durable.Message {
	batch := make([]*durable.Message, benchBatch)
	for i := range batch {
		batch[i] = &durable.Message{ID: ids.Next(), ChannelNo: 1, ProducerNo: 1, Audience: audience,
			ContentType: "text/plain", Payload: benchPayload}
	}
	return batch
}

var benchPayload = bytes.Repeat([]byte("abcdefgh"), 128)

// benchmarkRead reads a batch of messages as a claim does.
func benchmarkRead(b *testing.B, s *durable.Store) {
	_, _, err := s.PutChannel(b.Context(), durable.Put{ID: "c"})
	require.NoError(b, err)
	node, err := s.LeaseNode(b.Context(), "n", time.Hour)
	require.NoError(b, err)
	batch := benchMessages(ident.NewGenerator(node.No, func() int64 { return time.Now().UnixMilli() }), 0)
	for _, err := range s.Insert(b.Context(), node, batch) {
		require.NoError(b, err)
	}
	all := make([]ident.ID, len(batch))
	for i, m := range batch {
		all[i] = m.ID
	}
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		read, _, err := s.MessagesUpTo(b.Context(), 1, all, 1<<20)
		require.NoError(b, err)
		require.Len(b, read, len(all))
	}
	b.ReportMetric(float64(b.N*benchBatch)/b.Elapsed().Seconds(), "messages/s")
}

// benchmarkPurge removes batches of messages that one consumer got.
func benchmarkPurge(b *testing.B, s *durable.Store) {
	_, _, err := s.PutChannel(b.Context(), durable.Put{ID: "c"})
	require.NoError(b, err)
	url := "http://127.0.0.1/"
	k, _, err := s.PutConsumer(b.Context(), durable.ConsumerPut{Put: durable.Put{ID: "k"}, ChannelID: "c",
		CallbackURL: &url})
	require.NoError(b, err)
	node, err := s.LeaseNode(b.Context(), "n", time.Hour)
	require.NoError(b, err)
	ids := ident.NewGenerator(node.No, func() int64 { return time.Now().UnixMilli() })
	for range b.N {
		batch := benchMessages(ids, 1)
		outcomes := make([]durable.Outcome, len(batch))
		for i, m := range batch {
			outcomes[i] = durable.Outcome{ConsumerNo: k.No, ID: m.ID, Attempts: 1, AtMs: 1, StatusCode: 200}
		}
		for _, err := range s.Insert(b.Context(), node, batch) {
			require.NoError(b, err)
		}
		require.NoError(b, s.Record(b.Context(), outcomes))
	}
	b.ReportAllocs()
	b.ResetTimer()
	p := durable.Purge{ChannelNo: 1, Consumers: []*durable.Consumer{&k}, Through: ident.Max(), Limit: benchBatch}
	for range b.N {
		done, err := s.Purge(b.Context(), p)
		require.NoError(b, err)
		require.Equal(b, benchBatch, done.Removed)
		p.After = done.Last
	}
	b.ReportMetric(float64(b.N*benchBatch)/b.Elapsed().Seconds(), "messages/s")
}

func benchmarkRecord(b *testing.B, s *durable.Store, workers int) {
	ids := ident.NewGenerator(1, func() int64 { return time.Now().UnixMilli() })
	b.ReportAllocs()
	b.ResetTimer()
	inParallel(b, workers, func() {
		batch := make([]durable.Outcome, benchBatch)
		for i := range batch {
			batch[i] = durable.Outcome{ConsumerNo: 1, ID: ids.Next(), Attempts: 1, AtMs: time.Now().UnixMilli(), StatusCode: 200}
		}
		if err := s.Record(b.Context(), batch); err != nil {
			b.Error(err)
		}
	})
	b.ReportMetric(float64(b.N*benchBatch)/b.Elapsed().Seconds(), "outcomes/s")
}
