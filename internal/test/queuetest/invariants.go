package queuetest

import (
	"context"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/redisq"
)

// CheckInvariants reads the keys of a consumer in one transaction and fails the test if they
// break an invariant:
//
//   - a job is in one of ready, delayed and leased;
//   - a leased job has a unique token, other jobs have none;
//   - a delayed job has a meta field; a ready job has one only with an attempt or a flag;
//     a job in no set has none;
//   - a consumer with jobs has an epoch;
//   - no key expires.
func CheckInvariants(t require.TestingT, client redis.UniversalClient, q *redisq.Queue, consumer uint32) {
	ctx := context.Background()
	keys := q.Keys(consumer)
	var sets [3]*redis.ZSliceCmd
	var meta, control *redis.MapStringStringCmd
	var ttls []*redis.DurationCmd
	_, err := client.TxPipelined(ctx, func(p redis.Pipeliner) error {
		for i := range sets {
			sets[i] = p.ZRangeWithScores(ctx, keys[i], 0, -1)
		}
		meta, control = p.HGetAll(ctx, keys[3]), p.HGetAll(ctx, keys[4])
		for _, key := range keys {
			ttls = append(ttls, p.TTL(ctx, key))
		}
		return nil
	})
	require.NoError(t, err)

	where := map[string]string{}
	tokens := map[string]bool{}
	for i, name := range []string{"ready", "delayed", "leased"} {
		for _, z := range sets[i].Val() {
			id, _ := z.Member.(string)
			require.Len(t, id, ident.Size, "a member of %s", name)
			require.Empty(t, where[id], "a job in %s", name)
			where[id] = name
			require.True(t, z.Score > 0 && z.Score < 1<<53 && (name == "ready" || z.Score < 1<<52) &&
				z.Score == float64(int64(z.Score)), "score %v in %s", z.Score, name)

			value, has := meta.Val()[id]
			require.True(t, has || name == "ready", "a job in %s without meta", name)
			if !has {
				require.Less(t, z.Score, float64(1<<52), "a plain job among the retries")
				continue
			}
			p := strings.Split(value, "|")
			require.True(t, len(p) == 5 || len(p) == 6 && name == "leased" && p[5] != "", "meta %q of a job in %s", value, name)
			require.Equal(t, name == "leased", p[3] != "", "the token of a job in %s: %q", name, value)
			require.False(t, p[3] != "" && tokens[p[3]], "token %s is held twice", p[3])
			tokens[p[3]] = true
			if name == "ready" {
				priority := redisq.MaxPriority - int(int64(z.Score)%(1<<52)>>42)
				require.Equal(t, p[1] != "0", z.Score >= 1<<52, "the lane of a job with meta %q", value)
				require.Equal(t, strconv.Itoa(priority), p[0], "score and meta disagree: %q", value)
				require.False(t, p[1] == "0" && p[2] == "0", "a plain ready job with meta %q", value)
			}
		}
	}
	for id := range meta.Val() {
		require.NotEmpty(t, where[id], "meta of a job in no set: %q", meta.Val()[id])
	}
	if len(where) > 0 || len(control.Val()) > 0 {
		require.NotEmpty(t, control.Val()["e"], "jobs without an epoch")
	}
	for i, ttl := range ttls {
		require.Negative(t, ttl.Val(), "key %s expires", keys[i])
	}
}

// check is CheckInvariants of the common consumer.
func check(t require.TestingT, s Server, q *redisq.Queue) {
	if h, ok := t.(interface{ Helper() }); ok {
		h.Helper()
	}
	CheckInvariants(t, s.Client, q, consumer)
}
