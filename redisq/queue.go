package redisq

import (
	"crypto/rand"
	"encoding/base32"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// DefaultWindow is how many ready jobs of one consumer Redis keeps.
const DefaultWindow = 100_000

// Options of New. The zero value is usable.
type Options struct {
	Prefix string       // of every key; DefaultPrefix when empty
	Window int          // ready jobs per consumer kept in Redis; DefaultWindow when below 1
	Runs   *RunWatch    // from Connect: a new Redis process moves the generation; may be nil
	Logger *slog.Logger // lost state is logged here; slog.Default when nil
}

// A Queue is the queues of all consumers in one Redis. One per process is
// enough; all methods may be called concurrently.
//
// A method that returns an error may or may not have had its effect, unless the
// error is a refusal by Redis. Ack, Extend, RestoreLeases, Nack, Release, Peek, Probe, Stats
// and Enqueue of Repeated or Recovered jobs may simply be repeated; jobs of a
// Claim whose answer was lost come back when their lease ends.
type Queue struct {
	client redis.UniversalClient
	prefix string
	window int
	log    *slog.Logger

	generation atomic.Uint64

	mu     sync.RWMutex
	epochs map[uint32]string // as this process last saw them
	onLost []func(consumer uint32)
}

// New returns a queue on client, which stays the caller's to close.
func New(client redis.UniversalClient, o Options) *Queue {
	if o.Prefix == "" {
		o.Prefix = DefaultPrefix
	}
	if strings.ContainsAny(o.Prefix, "{}") {
		panic("redisq: a key prefix with braces would break the hash tags")
	}
	if o.Window < 1 {
		o.Window = DefaultWindow
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	q := &Queue{
		client: client,
		prefix: o.Prefix,
		window: o.Window,
		log:    o.Logger,
		epochs: map[uint32]string{},
	}
	if o.Runs != nil {
		o.Runs.OnChange(func() { q.generation.Add(1) })
	}
	return q
}

// Generation increments whenever what this process remembers about Redis may
// have become wrong: a consumer's epoch was adopted, or another Redis process
// answers. A job may be sent without asking the store only when it was enqueued
// as Fresh by this process in the current generation: read the generation before
// Enqueue is called, and compare when the job is claimed.
func (q *Queue) Generation() uint64 { return q.generation.Load() }

// OnLost registers a function that is told when a consumer's state in Redis was
// lost or replaced, or is seen for the first time: its jobs must be walked in the
// store. It is called once per adoption of an epoch, from the goroutine whose call
// noticed, before that call is repeated; it must not block nor call the Queue.
func (q *Queue) OnLost(f func(consumer uint32)) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.onLost = append(q.onLost, f)
}

// Keys returns the names of a consumer's keys (ready, delayed, leased, meta,
// control), for inspection.
func (q *Queue) Keys(consumer uint32) []string { return keysOf(q.prefix, consumer) }

// Window returns how many ready jobs of one consumer Redis keeps.
func (q *Queue) Window() int { return q.window }

// Epoch names the state of a consumer in Redis as this process knows it, "" before
// the first contact.
func (q *Queue) Epoch(consumer uint32) string {
	q.mu.RLock()
	defer q.mu.RUnlock()
	return q.epochs[consumer]
}

// adopt replaces the epoch known in the failed call by the current one. When
// another goroutine was faster nothing happens: its adoption has been reported,
// and a call that is repeated with a wrong epoch is told again.
func (q *Queue) adopt(consumer uint32, known, current string) {
	q.mu.Lock()
	if q.epochs[consumer] != known || known == current {
		q.mu.Unlock()
		return
	}
	q.epochs[consumer] = current
	q.generation.Add(1)
	callbacks := q.onLost[:len(q.onLost):len(q.onLost)]
	q.mu.Unlock()
	if known != "" {
		q.log.Warn("redis state of a consumer was lost or replaced", "consumer", consumer)
	}
	for _, f := range callbacks {
		f(consumer)
	}
}

// newEpoch returns 80 random bits: epochs never repeat, and so tokens neither.
func newEpoch() string {
	var b [10]byte
	if _, err := rand.Read(b[:]); err != nil {
		panic(fmt.Sprintf("redisq: no randomness: %v", err)) // crypto/rand never returns an error
	}
	return strings.ToLower(base32.HexEncoding.EncodeToString(b[:]))
}
