//go:build unix

package chaos

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"time"

	"github.com/redis/go-redis/v9"
)

// storeKinds hit MySQL.
func storeKinds() []kind {
	return []kind{
		{1, func(r *rig, rng *rand.Rand) blow {
			away := between(rng, 0, 3*time.Second)
			return onMySQL(r, Fault{Kind: "MySQL killed", Detail: fmt.Sprintf("for %v", away), Catalogue: "F14"},
				func(ctx context.Context) error {
					if err := r.mysql.Kill(); err != nil {
						return err
					}
					pause(ctx, away)
					return r.mysql.Restart()
				})
		}},
		{1, func(r *rig, rng *rand.Rand) blow {
			d := between(rng, 2*time.Second, 10*time.Second)
			return onMySQL(r, Fault{Kind: "MySQL paused", Detail: d.String(), Catalogue: "F15"},
				func(ctx context.Context) error {
					if err := r.mysql.Pause(); err != nil {
						return err
					}
					pause(ctx, d)
					return r.mysql.Resume()
				})
		}},
		{2, func(r *rig, rng *rand.Rand) blow {
			times := 1 + rng.IntN(8)
			return onMySQL(r, Fault{Kind: "MySQL connections killed", Detail: fmt.Sprintf("%d times", times), Catalogue: "F16"},
				func(ctx context.Context) error {
					for range times {
						if err := killConnections(ctx, r.db); err != nil {
							return err
						}
						pause(ctx, 250*time.Millisecond)
					}
					return nil
				})
		}},
		{1, func(r *rig, rng *rand.Rand) blow {
			d := between(rng, time.Second, 5*time.Second)
			return onMySQL(r, Fault{Kind: "MySQL read-only", Detail: d.String(), Catalogue: "F17"},
				func(ctx context.Context) error {
					if _, err := r.db.ExecContext(ctx, "SET GLOBAL read_only = 1"); err != nil {
						return err
					}
					pause(ctx, d)
					_, err := r.db.ExecContext(context.WithoutCancel(ctx), "SET GLOBAL read_only = 0")
					return err
				})
		}},
	}
}

func onMySQL(r *rig, f Fault, hit func(ctx context.Context) error) blow {
	f.Store, f.Unstored, f.Broker, f.Channel = true, true, unspecified, unspecified
	return blow{f, func(ctx context.Context) error {
		r.storeMu.Lock()
		defer r.storeMu.Unlock()
		return hit(ctx)
	}}
}

// killConnections ends every connection of the brokers.
func killConnections(ctx context.Context, db *sql.DB) error {
	rows, err := db.QueryContext(ctx, "SELECT id FROM information_schema.processlist WHERE user = ?", brokerUser)
	if err != nil {
		return err
	}
	var ids []int64
	for rows.Next() {
		var id int64
		if err := rows.Scan(&id); err != nil {
			return errors.Join(err, rows.Close())
		}
		ids = append(ids, id)
	}
	if err := errors.Join(rows.Err(), rows.Close()); err != nil {
		return err
	}
	for _, id := range ids {
		_, _ = db.ExecContext(ctx, fmt.Sprintf("KILL %d", id)) // the connection may have ended
	}
	return nil
}

// redisKinds are the kinds that affect Redis: the common ones and those of the topology.
func redisKinds(topology string) []kind {
	out := []kind{
		{2, func(r *rig, rng *rand.Rand) blow { return flushed(r, "Redis emptied", "F20", 1, 0) }},
		{1, func(r *rig, rng *rand.Rand) blow {
			return flushed(r, "Redis emptied during the rebuild", "F21", 2+rng.IntN(4), between(rng, 20*time.Millisecond,
				800*time.Millisecond))
		}},
		{1, func(r *rig, rng *rand.Rand) blow {
			times := 1 + rng.IntN(10)
			return onRedis(r, Fault{Kind: "Redis scripts flushed", Catalogue: "F22"}, func(ctx context.Context) error {
				for range times {
					if err := r.redis.each(ctx, func(ctx context.Context, c *redis.Client) error {
						return c.ScriptFlush(ctx).Err()
					}); err != nil {
						return err
					}
					pause(ctx, 200*time.Millisecond)
				}
				return nil
			})
		}},
		{1, redisPaused},
		{1, redisFull},
		{1, func(r *rig, rng *rand.Rand) blow {
			i, away := rng.IntN(len(r.redis.nodes)), between(rng, 0, 3*time.Second)
			return onRedis(r, Fault{Kind: "Redis restarted empty", Detail: fmt.Sprintf("node %d, for %v", i, away),
				Catalogue: "F23 F25", Repeats: true},
				func(ctx context.Context) error { return restartEmpty(ctx, r.redis.nodes[i], away) })
		}},
	}
	if topology == sentinel {
		return append(out, kind{3, failedOver})
	}
	return append(out, kind{1, func(r *rig, rng *rand.Rand) blow {
		i := rng.IntN(len(r.redis.nodes))
		age, away := between(rng, time.Second, 8*time.Second), between(rng, 0, 2*time.Second)
		return onRedis(r, Fault{Kind: "Redis restarted with an old snapshot", Detail: fmt.Sprintf("node %d, %v old", i, age),
			Catalogue: "F23", Repeats: true},
			func(ctx context.Context) error {
				n := r.redis.nodes[i]
				path, err := snapshotOf(ctx, n)
				if err == nil {
					err = restartOld(ctx, n, age, away)
				}
				return errors.Join(err, os.Remove(path))
			})
	}})
}

// onRedis is a blow after which Redis works again.
func onRedis(r *rig, f Fault, hit func(ctx context.Context) error) blow {
	f.Broker, f.Channel = unspecified, unspecified
	return blow{f, func(ctx context.Context) error {
		r.redisMu.Lock()
		defer r.redisMu.Unlock()
		if err := hit(ctx); err != nil {
			return err
		}
		return r.redis.healthy(context.WithoutCancel(ctx))
	}}
}

func flushed(r *rig, name, catalogue string, times int, apart time.Duration) blow {
	return onRedis(r, Fault{Kind: name, Catalogue: catalogue, Repeats: true}, func(ctx context.Context) error {
		for i := range times {
			if i > 0 {
				pause(ctx, apart)
			}
			if err := r.redis.each(ctx, func(ctx context.Context, c *redis.Client) error {
				return c.FlushAll(ctx).Err()
			}); err != nil {
				return err
			}
		}
		return nil
	})
}

// redisPaused freezes a node. Behind Sentinel that causes a failover, and the old master returns.
func redisPaused(r *rig, rng *rand.Rand) blow {
	i, d := rng.IntN(len(r.redis.nodes)), between(rng, time.Second, 10*time.Second)
	f := Fault{Kind: "Redis paused", Detail: fmt.Sprintf("node %d for %v", i, d), Catalogue: "F26",
		Repeats: r.redis.kind == sentinel}
	return onRedis(r, f, func(ctx context.Context) error {
		n := r.redis.nodes[i]
		if err := n.Pause(); err != nil {
			return err
		}
		pause(ctx, d)
		return n.Resume()
	})
}

// redisFull limits the memory, so that Redis refuses every write that adds data.
func redisFull(r *rig, rng *rand.Rand) blow {
	d := between(rng, time.Second, 6*time.Second)
	limit := func(ctx context.Context, bytes string) error {
		return r.redis.each(ctx, func(ctx context.Context, c *redis.Client) error {
			return c.ConfigSet(ctx, "maxmemory", bytes).Err()
		})
	}
	return onRedis(r, Fault{Kind: "Redis full", Detail: d.String(), Catalogue: "F27"}, func(ctx context.Context) error {
		if err := limit(ctx, "1"); err != nil {
			return err
		}
		pause(ctx, d)
		return limit(context.WithoutCancel(ctx), "0")
	})
}

// failedOver kills the master and brings it back as a replica.
func failedOver(r *rig, rng *rand.Rand) blow {
	away := between(rng, 4*time.Second, 8*time.Second)
	return onRedis(r, Fault{Kind: "Sentinel failover", Catalogue: "F24", Repeats: true}, func(ctx context.Context) error {
		m, err := r.redis.group.Master(ctx)
		if err != nil {
			return err
		}
		if err := m.Kill(); err != nil {
			return err
		}
		pause(ctx, away)
		return m.Restart()
	})
}
