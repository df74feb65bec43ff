package nats

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock-broker/penstock/internal/model/policy"
	"github.com/penstock-broker/penstock/internal/tool/egress"
	"github.com/penstock-broker/penstock/internal/tool/guard"
	"github.com/penstock-broker/penstock/internal/tool/share"
)

// mostLinks bounds the connections of this process. Each has 32 KiB of buffers.
const mostLinks = 256

// A server is what consumers with one connection have in common.
type server struct {
	rule          egress.Rule
	secure        bool
	host, port    string
	authorization policy.Authorization
}

func (s *server) address() string { return net.JoinHostPort(s.host, s.port) }

// servers are the connections to servers. Each is made when an attempt needs it, and ends when none has for a
// while.
type servers struct {
	o      Options
	places *share.Bound
	wanted atomic.Int64 // servers that wait for a place
	life   context.Context
	stop   context.CancelFunc

	running sync.WaitGroup
	mu      sync.Mutex
	links   map[server]*entry
}

// An entry is a connection, or that it is being made, or waits for a place.
type entry struct {
	ctx     context.Context // ends with the broker, and when no attempt waits for its place any more
	give    context.CancelFunc
	waiting int           // attempts that wait for it; of servers.mu
	placed  bool          // it has a place; of servers.mu
	ready   chan struct{} // closed when one of the others is set
	link    *link
	err     error
}

func newServers(o Options) *servers {
	life, stop := context.WithCancel(context.Background())
	return &servers{o: o, life: life, stop: stop, links: map[server]*entry{},
		places: share.New(share.Options{Name: "nats_connections", Most: mostLinks})}
}

func (s *servers) close() {
	s.stop()
	s.running.Wait()
}

// link returns the connection to a server, which is made if there is none. It waits until ctx ends. The connection
// may have ended meanwhile.
func (s *servers) link(ctx context.Context, to server) (*link, error) {
	e, err := s.join(to)
	if err != nil {
		return nil, err
	}
	select {
	case <-e.ready:
		_ = s.leave(to, e)
		return e.link, e.err
	case <-ctx.Done():
		if !s.leave(to, e) {
			return nil, errPlaces
		}
		return nil, ctx.Err()
	}
}

// join returns the entry of a server, a new one if the last one is of no use.
func (s *servers) join(to server) (*entry, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.life.Err() != nil {
		return nil, egress.ErrClosed
	}
	e := s.links[to]
	if e == nil || !e.usable() {
		e = &entry{ready: make(chan struct{})}
		e.ctx, e.give = context.WithCancel(s.life)
		s.links[to] = e
		s.running.Go(func() {
			defer s.remove(to, e)
			s.run(to, e)
		})
	}
	e.waiting++
	return e, nil
}

// leave is the end of a wait. It reports whether the entry had a place by then. One that none waits for any more gets
// none.
func (s *servers) leave(to server, e *entry) (placed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.waiting--; e.waiting == 0 && !e.placed {
		e.give()
		if s.links[to] == e {
			delete(s.links, to)
		}
	}
	return e.placed
}

// place takes a place as soon as there is one. Connections that rest make room.
func (s *servers) place(e *entry, key share.Key) bool {
	if !s.places.Take(key, 1) && !s.await(e.ctx, key) {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.placed = e.ctx.Err() == nil; !e.placed { // the last one that waited left meanwhile
		s.places.Give(key, 1)
	}
	return e.placed
}

func (s *servers) await(ctx context.Context, key share.Key) bool {
	s.wanted.Add(1)
	defer s.wanted.Add(-1)
	s.endIdle()
	return s.places.Wait(ctx, key, 1) == nil
}

// run makes the connection of an entry, once it has a place, and reads it to its end.
func (s *servers) run(to server, e *entry) {
	defer e.give()
	key := share.Host(to.address())
	if !s.place(e, key) {
		if e.err = errPlaces; s.life.Err() != nil {
			e.err = egress.ErrClosed
		}
		close(e.ready)
		return
	}
	defer s.places.Give(key, 1)
	var l *link
	err := guard.Do("connection to a NATS server", func() (err error) {
		if l, err = s.connect(to); err != nil {
			return err
		}
		defer context.AfterFunc(s.life, func() { l.end(egress.ErrClosed) })()
		l.rested = func() {
			if s.wanted.Load() > 0 {
				s.endIdle()
			}
		}
		e.link = l
		close(e.ready)
		return l.read(s.o.Idle, s.o.Quiet)
	})
	if e.link != nil {
		l.end(err)
		return
	}
	e.err = err
	close(e.ready)
}

func (s *servers) remove(to server, e *entry) {
	s.mu.Lock()
	if s.links[to] == e {
		delete(s.links, to)
	}
	s.mu.Unlock()
}

// endIdle ends the connection that no attempt waits on and that was used longest ago.
func (s *servers) endIdle() {
	s.mu.Lock()
	defer s.mu.Unlock()
	var oldest *link
	var used time.Time
	for _, e := range s.links {
		if !e.made() || e.err != nil {
			continue
		}
		if at, rests := e.link.rests(); rests && !e.link.fresh() && e.link.takes() && (oldest == nil || at.Before(used)) {
			oldest, used = e.link, at
		}
	}
	if oldest != nil {
		oldest.endUnused()
	}
}

func (e *entry) made() bool {
	select {
	case <-e.ready:
		return true
	default:
		return false
	}
}

// usable reports whether the connection is being made, or takes messages.
func (e *entry) usable() bool { return !e.made() || e.err == nil && e.link.takes() }
