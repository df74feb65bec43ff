package redisq

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// A Server is what a Redis says of itself. A field that it hides is zero.
type Server struct {
	Addr      string
	Version   string
	Cluster   bool  // it is a node of a Cluster
	MaxMemory int64 // bytes; 0: no bound
	Policy    string
	AOF       bool   // it keeps its writes in a file
	Refuses   string // why it refuses writes after it could not write its own files; "": it does not
}

// Evicts reports whether the server drops keys of the queue when its memory is full, where a queue needs
// a refusal.
func (s Server) Evicts() bool { return s.MaxMemory > 0 && s.MayEvict() }

// MayEvict reports whether it would, once it has a bound.
func (s Server) MayEvict() bool { return s.Policy != "" && s.Policy != "noeviction" }

// TooOld returns why the scripts do not run on this server; nil: they do, or it hides its version.
func (s Server) TooOld() error {
	parts := strings.SplitN(s.Version, ".", 3)
	if len(parts) >= 2 {
		major, err1 := strconv.Atoi(parts[0])
		minor, err2 := strconv.Atoi(parts[1])
		if err1 == nil && err2 == nil && (major < 6 || major == 6 && minor < 2) {
			return fmt.Errorf("redisq: connect: Redis %s is older than 6.2", s.Version)
		}
	}
	return nil
}

// Unfit returns why the queue cannot be on this server, with what to do; nil: it can.
func (s Server) Unfit() error {
	if err := s.TooOld(); err != nil {
		return err
	}
	if s.Evicts() {
		return fmt.Errorf("redisq: connect: Redis drops keys of the queue when its memory is full (maxmemory is %d bytes, "+
			"maxmemory-policy %s): set maxmemory-policy noeviction, in its configuration too", s.MaxMemory, s.Policy)
	}
	return nil
}

// Servers asks a Redis, or each master of a Cluster, about itself. An error is of those that did not
// answer or refuse the question.
func Servers(ctx context.Context, client redis.UniversalClient) (all []Server, err error) {
	cluster, ok := client.(*redis.ClusterClient)
	if !ok {
		s, err := askServer(ctx, client)
		if err != nil {
			return nil, err
		}
		return []Server{s}, nil
	}
	var mu sync.Mutex
	var errs []error
	err = cluster.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
		s, err := askServer(ctx, node)
		s.Addr = node.Options().Addr
		mu.Lock()
		defer mu.Unlock()
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", s.Addr, err))
		} else {
			all = append(all, s)
		}
		return nil // the others are asked all the same
	})
	return all, errors.Join(append(errs, err)...)
}

func askServer(ctx context.Context, client redis.Cmdable) (Server, error) {
	info, err := client.Info(ctx).Result()
	if err != nil {
		return Server{}, fmt.Errorf("redisq: ask Redis about itself: %w", err)
	}
	s := Server{Version: infoField(info, "redis_version"), Cluster: infoField(info, "redis_mode") == "cluster",
		Policy: infoField(info, "maxmemory_policy"), AOF: infoField(info, "aof_enabled") == "1"}
	s.MaxMemory, _ = strconv.ParseInt(infoField(info, "maxmemory"), 10, 64)
	for _, write := range []struct{ field, text string }{
		{"aof_last_write_status", "its append-only file"}, {"rdb_last_bgsave_status", "its snapshot"},
	} {
		if infoField(info, write.field) == "err" {
			s.Refuses = "it could not write " + write.text
		}
	}
	return s, nil
}

// AskClock returns how far the clock of Redis is ahead of that of this process: of three answers that
// of the fastest.
func AskClock(ctx context.Context, client redis.Cmdable) (ahead time.Duration, err error) {
	best := time.Hour
	for range 3 {
		begun := time.Now()
		now, err := client.Time(ctx).Result()
		if err != nil {
			return 0, fmt.Errorf("redisq: ask for the clock of Redis: %w", err)
		}
		if took := time.Since(begun); took < best {
			best, ahead = took, now.Sub(begun.Add(took/2))
		}
	}
	return ahead, nil
}
