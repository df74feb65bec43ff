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
// remembers, with the same epoch.
type RunWatch struct {
	mu       sync.Mutex
	seen     map[string]bool // run_ids
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
	info, err := cn.Info(ctx, "server").Result()
	if err != nil {
		var refused redis.Error
		if errors.As(err, &refused) {
			return nil
		}
		return err
	}
	w.observe(infoField(info, "run_id"))
	return nil
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
