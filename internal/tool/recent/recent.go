// Package recent remembers the latest of many things, and forgets the oldest.
package recent

import "sync"

// A Memory has values by key, at most as many as it was made for: the oldest key makes room for the
// newest. It is safe for concurrent use.
type Memory[K comparable, V any] struct {
	most int

	mu    sync.Mutex
	known map[K]V
	order []K // a ring; the next to be forgotten is at next
	next  int
}

// New returns a memory of at most so many keys.
func New[K comparable, V any](most int) *Memory[K, V] {
	return &Memory[K, V]{most: most, known: map[K]V{}}
}

// Put remembers a value. A key that is known keeps its place in the order.
func (m *Memory[K, V]) Put(k K, v V) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, ok := m.known[k]; !ok {
		if len(m.order) < m.most {
			m.order = append(m.order, k)
		} else {
			delete(m.known, m.order[m.next])
			m.order[m.next] = k
			m.next = (m.next + 1) % m.most
		}
	}
	m.known[k] = v
}

// Get returns the value of a key.
func (m *Memory[K, V]) Get(k K) (v V, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	v, ok = m.known[k]
	return v, ok
}

// Len returns how many keys are known.
func (m *Memory[K, V]) Len() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.known)
}
