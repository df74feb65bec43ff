package redisq

// A replay has a queue of its own beside that of its consumer. Its number is from the sequence of
// the consumers, so every call takes it as a consumer. Both queues count their leases together:
// the rates of the consumer are counted in its control key, and the concurrency is compared with
// the sum of both. A claim of a replay grants nothing while the consumer has ready jobs.

// replayLinks are what a Queue knows of replays.
type replayLinks struct {
	consumer map[uint32]uint32 // replay -> consumer; for the life of the process
	replay   map[uint32]uint32 // consumer -> the replay that has leases now
}

// Join tells the queue that a number is that of a replay of a consumer, before any call for the
// replay. A consumer has at most one replay at a time. Join may be repeated.
func (q *Queue) Join(replay, consumer uint32) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.links.consumer == nil {
		q.links = replayLinks{consumer: map[uint32]uint32{}, replay: map[uint32]uint32{}}
	}
	q.links.consumer[replay], q.links.replay[consumer] = consumer, replay
}

// Part tells the queue that a replay has ended: the calls for its consumer no longer count its
// leases.
func (q *Queue) Part(replay uint32) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if consumer, ok := q.links.consumer[replay]; ok && q.links.replay[consumer] == replay {
		delete(q.links.replay, consumer)
	}
}

// replays reports whether a number is that of a replay.
func (q *Queue) replays(consumer uint32) bool {
	q.mu.RLock()
	defer q.mu.RUnlock()
	_, ok := q.links.consumer[consumer]
	return ok
}

// keys returns the keys of a call for a consumer, which begin with its own five. See lua/grant.lua
// for the others.
func (q *Queue) keys(consumer uint32) []string {
	q.mu.RLock()
	parent, replays := q.links.consumer[consumer]
	replay, replayed := q.links.replay[consumer]
	q.mu.RUnlock()
	switch {
	case replays:
		of := keysOf(q.prefix, parent)
		return append(keysOfReplay(q.prefix, consumer, parent), of[0], of[2], of[4])
	case replayed:
		return append(keysOf(q.prefix, consumer), keysOfReplay(q.prefix, replay, consumer)[2])
	}
	return keysOf(q.prefix, consumer)
}
