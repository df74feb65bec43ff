package egress

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
)

// How long an answer of the resolver counts. Short enough to follow a consumer
// that moves, long enough that a busy one does not ask for every connection.
const (
	foundFor   = 15 * time.Second
	missingFor = time.Second
)

// maxNames bounds the cache: about 1 MiB.
const maxNames = 4096

// lookupTimeout bounds one question. Each name is asked for on its own, so a
// slow zone delays only the consumers in it.
const lookupTimeout = 5 * time.Second

// A resolver remembers the addresses of host names for a while.
type resolver struct {
	lookup func(ctx context.Context, host string) ([]netip.Addr, error)
	group  singleflight.Group

	mu    sync.Mutex
	names map[string]answer
}

type answer struct {
	addrs []netip.Addr
	err   error
	until time.Time
}

// addrs returns the addresses of host. Callers who ask for the same name at the
// same time share one question, and each waits only as long as its own ctx;
// the question itself lives at most lookupTimeout and not longer than life.
func (r *resolver) addrs(ctx, life context.Context, host string) ([]netip.Addr, error) {
	if addr, literal, err := parseHost(host); err != nil {
		return nil, err
	} else if literal {
		return []netip.Addr{addr}, nil
	}
	r.mu.Lock()
	a, ok := r.names[host]
	r.mu.Unlock()
	if ok && time.Now().Before(a.until) {
		return a.addrs, a.err
	}
	done := r.group.DoChan(host, func() (any, error) {
		ctx, cancel := context.WithTimeout(life, lookupTimeout)
		defer cancel()
		addrs, err := r.lookup(ctx, host)
		if err == nil && len(addrs) == 0 {
			err = errors.New("no address")
		}
		a := answer{addrs: addrs, err: err, until: time.Now().Add(foundFor)}
		if err != nil {
			a.until = time.Now().Add(missingFor)
		}
		r.remember(host, a)
		return addrs, err
	})
	select {
	case res := <-done:
		if res.Err != nil {
			return nil, res.Err
		}
		return res.Val.([]netip.Addr), nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (r *resolver) remember(host string, a answer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.names) >= maxNames {
		now := time.Now()
		for name, old := range r.names {
			if now.After(old.until) {
				delete(r.names, name)
			}
		}
		for name := range r.names { // all fresh: any one makes room
			if len(r.names) < maxNames {
				break
			}
			delete(r.names, name)
		}
	}
	r.names[host] = a
}
