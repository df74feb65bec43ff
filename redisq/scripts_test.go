package redisq

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/test/servers"
)

// onBoth runs a test on the embedded server and on a real one.
func onBoth(t *testing.T, test func(t *testing.T, client redis.UniversalClient, q *Queue)) {
	for name, url := range map[string]func(t *testing.T) string{
		"miniredis":    func(t *testing.T) string { return "redis://" + miniredis.RunT(t).Addr() },
		"real servers": func(t *testing.T) string { return servers.Redis(t) },
	} {
		t.Run(name, func(t *testing.T) {
			client, watch, err := Connect(context.Background(), ConnectOptions{URL: url(t), Timeout: 20 * time.Second})
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, client.Close()) })
			q := New(client, Options{Prefix: fmt.Sprintf("raw%x:", time.Now().UnixNano()), Window: 100, Runs: watch})
			t.Cleanup(func() { client.Del(context.Background(), q.Keys(1)...) })
			test(t, client, q)
		})
	}
}

// dump returns the whole content of Redis for consumer 1.
func dump(t *testing.T, client redis.UniversalClient, q *Queue) string {
	t.Helper()
	ctx := context.Background()
	keys := q.Keys(1)
	var out string
	for i, key := range keys {
		if i < 3 {
			out += fmt.Sprintln(key, client.ZRangeWithScores(ctx, key, 0, -1).Val())
		} else {
			out += fmt.Sprintln(key, client.HGetAll(ctx, key).Val())
		}
	}
	return out
}

func TestMalformedArgumentsChangeNothing(t *testing.T) {
	onBoth(t, func(t *testing.T, client redis.UniversalClient, q *Queue) {
		ctx := context.Background()
		var ids []string
		var js []Job
		for i := range 4 {
			id := ident.AtMillis(1_700_000_000_000 + int64(i))
			ids = append(ids, string(id[:]))
			js = append(js, Job{ID: id, Priority: i})
		}
		_, err := q.Enqueue(ctx, 1, js, Recovered)
		require.NoError(t, err)
		claim, err := q.Claim(ctx, 1, 2, time.Hour, Limits{})
		require.NoError(t, err)
		leased, token := string(claim.Leases[0].ID[:]), claim.Leases[0].Token
		before := dump(t, client, q)

		// The scripts do not check the form of tokens: a wrong one matches no lease.
		type free string
		for _, c := range []struct {
			script *script
			args   []any
		}{
			{enqueueScript, []any{100, 0, ids[0], 5, 0, 0, "newnewnewnew", 5, 0, 0}},
			{offerScript, []any{100, 5, 0, 1000, "newnewnewnew"}},
			{claimScript, []any{1, 1000, 100, 0, 0}},
			{regrantScript, []any{free(""), "limits 1 1000 0 0 0 25"}},
			{claimEachScript, []any{ids[0], 5, 0, 1000, 1, ids[1], 5, 0, 1000, 0}},
			{extendScript, []any{1000, leased, free(token)}},
			{restoreLeasesScript, []any{1000, leased, free(token), 5, 1}},
			{ackScript, []any{ids[0]}},
			{nackScript, []any{leased, free(token), 1000}},
			{releaseScript, []any{leased, free(token), free("")}},
			{reclaimScript, []any{10, 1, 1000}},
			{peekScript, []any{10, 1, ids[0], 100}},
			{probeScript, []any{ids[0]}},
			{statsScript, nil},
			{holdScript, []any{1000}},
			{spilledScript, []any{3, 0}},
		} {
			if c.script == claimScript {
				for _, bad := range []string{"", "1 1000 0 0 0", "1 1000 0 0 0 0", "1 1000 0 0 0 101", "1 0 0 0 0 25",
					"-1 1000 0 0 0 25", "1 1000 0 0 0 25 7", "x 1000 0 0 0 25"} {
					_, err := q.run(ctx, 1, c.script, append(append([]any{}, c.args...), "limits "+bad)...)
					require.ErrorContains(t, err, "malformed", bad)
				}
			}
			variants := [][]any{append(append([]any{}, c.args...), "extra")}
			if len(c.args) > 0 {
				variants = append(variants, c.args[:len(c.args)-1])
			}
			for i, arg := range c.args {
				if _, ok := arg.(free); ok {
					continue
				}
				for _, bad := range []any{"", "x", "nan", "inf", "-5", "1.5", "1e300", "1|2", "x|w"} {
					if c.script == peekScript && i == 1 && bad == "" {
						continue // from the start
					}
					if (c.script == claimEachScript && i%5 == 4 || c.script == restoreLeasesScript && i == 4) && bad == "1|2" {
						continue // a worker may stand behind it
					}
					broken := append([]any{}, c.args...)
					broken[i] = bad
					variants = append(variants, broken)
				}
			}
			for _, args := range variants {
				for i, arg := range args {
					if token, ok := arg.(free); ok {
						args[i] = string(token)
					}
				}
				_, err := q.run(ctx, 1, c.script, args...)
				require.ErrorContains(t, err, "malformed", "%s %q", c.script.name, args)
				require.Equal(t, before, dump(t, client, q), "%s %q", c.script.name, args)
			}
		}
	})
}

func TestScriptAndGoAgreeOnTheScore(t *testing.T) {
	onBoth(t, func(t *testing.T, client redis.UniversalClient, q *Queue) {
		ctx := context.Background()
		for _, priority := range []int{0, 1, 1022, 1023} {
			for _, ms := range []int64{1, 1_400_000_000_123} {
				id := ident.AtMillis(ms)
				_, err := q.Enqueue(ctx, 1, []Job{{ID: id, Priority: priority}}, Recovered)
				require.NoError(t, err)
				score, err := client.ZScore(ctx, q.Keys(1)[0], string(id[:])).Result()
				require.NoError(t, err)
				require.Equal(t, readyScore(priority, 0, ms), int64(score))
				_, err = q.Ack(ctx, 1, []ident.ID{id})
				require.NoError(t, err)
			}
		}
	})
}
