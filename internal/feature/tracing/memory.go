package tracing

import (
	"sync"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/ident"
)

// remembered bounds what a Tracer knows of the jobs of pull workers.
const remembered = 8192

// A jobKey names a job, or its replay: a worker that reports on one does not say which.
type jobKey struct {
	consumer uint32
	id       ident.ID
}

func keyOf(k *durable.Consumer, id ident.ID) jobKey { return jobKey{k.Account(), id} }

// A memory knows something of the latest jobs. The oldest makes room for the newest.
type memory[T any] struct {
	mu    sync.Mutex
	known map[jobKey]T
	order []jobKey // a ring
	next  int
}

func (m *memory[T]) put(k jobKey, v T) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.known == nil {
		m.known = map[jobKey]T{}
	}
	if _, ok := m.known[k]; !ok {
		if len(m.order) < remembered {
			m.order = append(m.order, k)
		} else {
			delete(m.known, m.order[m.next])
			m.order[m.next] = k
			m.next = (m.next + 1) % remembered
		}
	}
	m.known[k] = v
}

func (m *memory[T]) get(k jobKey) (T, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	v, ok := m.known[k]
	return v, ok
}
