package redisq_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/test/servers"
	"github.com/penstock-broker/penstock/redisq"
)

// BenchmarkCycle is a job's life in Redis: enqueue, claim, ack, with that many
// jobs per call. ns/op is per job.
func BenchmarkCycle(b *testing.B) {
	for _, batch := range []int{1, 10, 100} {
		b.Run(fmt.Sprintf("batch=%d", batch), func(b *testing.B) {
			ctx := context.Background()
			client := connect(b, servers.Redis(b))
			q := redisq.New(client, redisq.Options{Prefix: ownPrefix()})
			all := ids(b.N + batch)
			js := jobsOf(all)
			b.ReportAllocs()
			b.ResetTimer()
			for i := 0; i < b.N; i += batch {
				if _, err := q.Enqueue(ctx, 1, js[i:i+batch], redisq.Fresh); err != nil {
					b.Fatal(err)
				}
				c, err := q.Claim(ctx, 1, batch, time.Hour, redisq.Limits{})
				if err != nil || len(c.Leases) != batch {
					b.Fatal(len(c.Leases), err)
				}
				done := make([]ident.ID, batch)
				for k, l := range c.Leases {
					done[k] = l.ID
				}
				if n, err := q.Ack(ctx, 1, done); err != nil || n != batch {
					b.Fatal(n, err)
				}
			}
			b.StopTimer()
			require.NoError(b, client.Del(ctx, q.Keys(1)...).Err())
		})
	}
}
