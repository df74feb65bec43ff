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
	wanted atomic.Int64 // attempts that wait for a place
	life   context.Context
	stop   context.CancelFunc

	running sync.WaitGroup
	mu      sync.Mutex
	links   map[server]*entry
}

// An entry is a connection, or that it is being made.
type entry struct {
	ready chan struct{} // closed when one of the others is set
	link  *link
	err   error
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
	e, err := s.entry(ctx, to)
	if err != nil {
		return nil, err
	}
	select {
	case <-e.ready:
		return e.link, e.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// entry returns the entry of a server, a new one if the last one is of no use.
func (s *servers) entry(ctx context.Context, to server) (*entry, error) {
	if e := s.have(to); e != nil {
		return e, nil
	}
	key := share.Host(to.address())
	if !s.places.Take(key, 1) && !s.await(ctx, key) {
		return nil, errPlaces
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.links[to]
	switch {
	case s.life.Err() != nil:
		s.places.Give(key, 1)
		return nil, egress.ErrClosed
	case e != nil && e.usable(): // made meanwhile
		s.places.Give(key, 1)
		return e, nil
	}
	e = &entry{ready: make(chan struct{})}
	s.links[to] = e
	s.running.Go(func() {
		defer s.places.Give(key, 1)
		defer s.remove(to, e)
		s.run(to, e)
	})
	return e, nil
}

// await takes a place as soon as there is one, until ctx ends. Connections that rest make room.
func (s *servers) await(ctx context.Context, key share.Key) bool {
	s.wanted.Add(1)
	defer s.wanted.Add(-1)
	s.endIdle()
	return s.places.Wait(ctx, key, 1) == nil
}

// have returns the entry of a server that can be used; nil: there is none.
func (s *servers) have(to server) *entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.links[to]; e != nil && e.usable() {
		return e
	}
	return nil
}

// run makes the connection of an entry and reads it to its end.
func (s *servers) run(to server, e *entry) {
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
		if at, rests := e.link.rests(); rests && e.link.takes() && (oldest == nil || at.Before(used)) {
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
