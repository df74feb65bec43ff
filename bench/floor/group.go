package main

import (
	"sync"
	"time"
)

// A group gathers items, and hands all that wait to one of its workers: at once, or after a pause
// in which more may come.
type group[T any] struct {
	limit  int
	linger time.Duration

	mu      sync.Mutex
	some    sync.Cond
	waiting []T
}

// newGroup starts n workers that live as long as the process.
func newGroup[T any](n, limit int, linger time.Duration, work func([]T)) *group[T] {
	g := &group[T]{limit: limit, linger: linger}
	g.some.L = &g.mu
	for range n {
		go func() {
			for {
				work(g.take())
			}
		}()
	}
	return g
}

func (g *group[T]) take() []T {
	g.mu.Lock()
	defer g.mu.Unlock()
	for len(g.waiting) == 0 {
		g.some.Wait()
	}
	if g.linger > 0 && len(g.waiting) < g.limit {
		g.mu.Unlock()
		time.Sleep(g.linger)
		g.mu.Lock()
	}
	n := min(len(g.waiting), g.limit)
	taken := g.waiting[:n:n]
	if n == len(g.waiting) {
		g.waiting = nil
	} else {
		g.waiting = g.waiting[n:]
		g.some.Signal()
	}
	return taken
}

func (g *group[T]) add(items ...T) {
	g.mu.Lock()
	g.waiting = append(g.waiting, items...)
	g.mu.Unlock()
	g.some.Signal()
}
