package redisq

import (
	"context"
	"errors"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

// A RunWatch notices when another Redis process answers: after a restart, a failover or a
// restored backup. The new process may have older state with the same epoch. A process
// that was a replica in between also counts as another one, because it lacks the writes
// that its master had not replicated in time.
type RunWatch struct {
	mu       sync.Mutex
	seen     map[string]bool // run_id and replication ID
	onChange []func()
}

// OnChange registers a function that the RunWatch calls when a connection reaches a new
// Redis process, except for the first process. f runs before the connection is used, and
// must neither block nor use the client.
func (w *RunWatch) OnChange(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.onChange = append(w.onChange, f)
}

// connected is the client's hook for each new connection. A server without a run_id is
// ignored: the embedded server lives as long as this process.
func (w *RunWatch) connected(ctx context.Context, cn *redis.Conn) error {
	run, err := field(ctx, cn, "server", "run_id")
	if err != nil || run == "" {
		return err
	}
	// Redis takes a new replication ID when it is promoted to master.
	history, err := field(ctx, cn, "replication", "master_replid")
	if err != nil {
		return err
	}
	w.observe(run + " " + history)
	return nil
}

// field reads a field of INFO, "" if the server refuses or lacks it.
func field(ctx context.Context, cn *redis.Conn, section, name string) (string, error) {
	info, err := cn.Info(ctx, section).Result()
	var refused redis.Error
	if errors.As(err, &refused) {
		return "", nil
	}
	return infoField(info, name), err
}

func (w *RunWatch) observe(run string) {
	if run == "" {
		return
	}
	w.mu.Lock()
	first := len(w.seen) == 0
	if first {
		w.seen = map[string]bool{}
	}
	changed := !w.seen[run] && !first
	w.seen[run] = true
	callbacks := w.onChange[:len(w.onChange):len(w.onChange)]
	w.mu.Unlock()
	if changed {
		for _, f := range callbacks {
			f()
		}
	}
}

// infoField returns a field of an INFO reply, "" if it is absent.
func infoField(info, name string) string {
	for line := range strings.Lines(info) {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
