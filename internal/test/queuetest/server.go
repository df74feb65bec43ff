// Package queuetest is the conformance suite of redisq.Queue. Every kind of Redis that the
// queue supports must pass it.
package queuetest

import (
	"context"
	"encoding/binary"
	"log/slog"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/redisq"
)

// A Server is one Redis, or the part of one that belongs to a test.
type Server struct {
	Client redis.UniversalClient
	Prefix string // of the keys of this test
	// Flush removes all keys of the server, as FLUSHALL does.
	Flush func()
	// Advance returns when the clock of the server has moved on by at least d.
	Advance func(d time.Duration)
}

// Queue returns a queue on the server, as another broker would have it. Queues of one server
// share jobs and nothing else.
func (s Server) Queue(window int) *redisq.Queue {
	return redisq.New(s.Client, redisq.Options{
		Prefix: s.Prefix,
		Window: window,
		Logger: slog.New(slog.DiscardHandler),
	})
}

// consumer is the number of the consumer that most tests use.
const consumer = uint32(42)

// never is a lease or delay that no test waits for.
const never = time.Hour

// at returns ID number n, with a time long past.
func at(n int) ident.ID {
	id := ident.AtMillis(1_700_000_000_000 + int64(n))
	binary.BigEndian.PutUint16(id[6:], 7)
	return id
}

// jobs returns n jobs of a priority, with IDs from..from+n-1.
func jobs(from, n, priority int) []redisq.Job {
	out := make([]redisq.Job, n)
	for i := range out {
		out[i] = redisq.Job{ID: at(from + i), Priority: priority}
	}
	return out
}

// idsOf lists the IDs of leases.
func idsOf(leases []redisq.Lease) []ident.ID {
	out := make([]ident.ID, len(leases))
	for i, l := range leases {
		out[i] = l.ID
	}
	return out
}

// returned lists the jobs whose leases ended.
func returned(x redisq.Expired) []ident.ID {
	out := make([]ident.ID, len(x.Returned))
	for i, j := range x.Returned {
		out[i] = j.ID
	}
	return out
}

// span lists the IDs from..to, in descending order if to is below from.
func span(from, to int) []ident.ID {
	var out []ident.ID
	for n := from; ; {
		out = append(out, at(n))
		switch {
		case n < to:
			n++
		case n > to:
			n--
		default:
			return out
		}
	}
}

func put(t *testing.T, q *redisq.Queue, js []redisq.Job, src redisq.Source) redisq.Enqueued {
	t.Helper()
	got, err := q.Enqueue(context.Background(), consumer, js, src)
	require.NoError(t, err)
	return got
}

func claim(t *testing.T, q *redisq.Queue, n int, lease time.Duration) redisq.Claim {
	t.Helper()
	got, err := q.Claim(context.Background(), consumer, n, lease, redisq.Limits{})
	require.NoError(t, err)
	return got
}

func standing(t *testing.T, q *redisq.Queue, id ident.ID) redisq.Standing {
	t.Helper()
	got, err := q.Probe(context.Background(), consumer, []ident.ID{id})
	require.NoError(t, err)
	require.Len(t, got, 1)
	return got[0]
}

// stats returns Stats without the epoch, which is random.
func stats(t *testing.T, q *redisq.Queue) redisq.Stats {
	t.Helper()
	got, err := q.Stats(context.Background(), consumer)
	require.NoError(t, err)
	require.NotEmpty(t, got.Epoch)
	got.Epoch = ""
	return got
}

func reclaim(t *testing.T, q *redisq.Queue, maxAttempts int) redisq.Expired {
	t.Helper()
	got, err := q.Reclaim(context.Background(), consumer, 100, maxAttempts)
	require.NoError(t, err)
	return got
}

// each returns a slice of n times v.
func each[T any](n int, v T) []T {
	out := make([]T, n)
	for i := range out {
		out[i] = v
	}
	return out
}
