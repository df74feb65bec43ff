package share

import "slices"

// Turns are queues by key that are served in turn: the first of each key, then the next of each.
// One that cannot be served holds back those of its key alone. The zero value has none. The caller
// locks.
type Turns[T comparable] struct {
	queues map[Key][]T
	order  []Key // of the keys that wait; the next to be served first
	size   int
}

// Push adds the last of a key.
func (t *Turns[T]) Push(k Key, v T) {
	if t.queues == nil {
		t.queues = map[Key][]T{}
	}
	q := t.queues[k]
	if len(q) == 0 {
		t.order = append(t.order, k)
	}
	t.queues[k] = append(q, v)
	t.size++
}

// Has reports whether any of a key waits.
func (t *Turns[T]) Has(k Key) bool { return len(t.queues[k]) > 0 }

// Len returns how many wait.
func (t *Turns[T]) Len() int { return t.size }

// Of returns how many of a key wait.
func (t *Turns[T]) Of(k Key) int { return len(t.queues[k]) }

// Remove takes out one that does not wait any longer. It reports whether it was still there.
func (t *Turns[T]) Remove(k Key, v T) bool {
	q := t.queues[k]
	i := slices.Index(q, v)
	if i < 0 {
		return false
	}
	t.size--
	if len(q) == 1 {
		t.drop(k)
		return true
	}
	if i == 0 { // the usual case: those of a key wait equally long
		t.queues[k] = q[1:]
	} else {
		t.queues[k] = slices.Delete(q, i, i+1)
	}
	return true
}

func (t *Turns[T]) drop(k Key) {
	delete(t.queues, k)
	i := slices.Index(t.order, k)
	t.order = slices.Delete(t.order, i, i+1)
}

// Serve offers the first of each key in turn to f, and takes out those that f accepts, until f has
// refused the first of every key.
func (t *Turns[T]) Serve(f func(T) bool) {
	for refused := 0; refused < len(t.order); {
		if t.next(f) {
			refused = 0
			continue
		}
		t.turn()
		refused++
	}
}

// ServeInOrder offers the first of each key in turn to f, and takes out those that f accepts, until f
// refuses one: nothing overtakes it, so one that needs much is not starved by those that need little.
func (t *Turns[T]) ServeInOrder(f func(T) bool) {
	for len(t.order) > 0 && t.next(f) {
	}
}

// next offers the first of the next key to f.
func (t *Turns[T]) next(f func(T) bool) bool {
	k := t.order[0]
	q := t.queues[k]
	if !f(q[0]) {
		return false
	}
	t.size--
	if len(q) == 1 {
		delete(t.queues, k)
		t.order = t.order[1:]
		return true
	}
	t.queues[k] = q[1:]
	t.turn()
	return true
}

// turn makes the first key the last one.
func (t *Turns[T]) turn() { t.order = append(t.order[1:], t.order[0]) }
