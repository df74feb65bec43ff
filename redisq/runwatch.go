package redisq

import (
	"context"
	"errors"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

// A RunWatch notices when another Redis process answers: restarted, failed over,
// restored from a backup. Its state may then be older than what this process
// remembers, with the same epoch. A process that was a replica meanwhile counts
// as another one: it has lost what it did not get from its master in time.
type RunWatch struct {
	mu       sync.Mutex
	seen     map[string]bool // run_id and the ID of the history of writes
	onChange []func()
}

// OnChange registers a function that is called when a connection reaches a Redis
// process not seen before, other than the first. It runs before that connection
// is used, and must not block nor use the client.
func (w *RunWatch) OnChange(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.onChange = append(w.onChange, f)
}

// connected is the client's hook for each new connection. A server that does not
// tell its run_id, such as an embedded one, lives and dies with this process.
func (w *RunWatch) connected(ctx context.Context, cn *redis.Conn) error {
	run, err := field(ctx, cn, "server", "run_id")
	if err != nil || run == "" {
		return err
	}
	// Redis takes a new one when it is promoted.
	history, err := field(ctx, cn, "replication", "master_replid")
	if err != nil {
		return err
	}
	w.observe(run + " " + history)
	return nil
}

// field asks for a field of INFO, "" when the server does not tell.
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

// infoField returns a field of an INFO reply, "" when it is not there.
func infoField(info, name string) string {
	for line := range strings.Lines(info) {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
