package redisq

import (
	"context"
	"crypto/rand"
	"encoding/base32"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/redis/go-redis/v9"

	"github.com/penstock-broker/penstock/internal/model/ident"
)

// DefaultWindow is the number of ready jobs of one consumer that Redis keeps.
const DefaultWindow = 100_000

// Options are the options of New. The zero value is usable.
type Options struct {
	Prefix string       // of every key; "" means DefaultPrefix
	Window int          // ready jobs per consumer kept in Redis; below 1 means DefaultWindow
	Runs   *RunWatch    // from Connect: a new Redis process changes the incarnation; may be nil
	Logger *slog.Logger // for lost state; nil means slog.Default
}

// A Queue holds the queues of all consumers in one Redis. A process needs only one. All
// methods may be called concurrently.
//
// A method that returns an error may have had its effect, unless the error is a refusal
// by Redis. Ack, Extend, RestoreLeases, Nack, Release, Peek, Probe, Stats, and Enqueue of
// Repeated or Recovered jobs may be repeated. If the reply of a Claim is lost, its jobs
// become ready again when their leases end.
type Queue struct {
	client redis.UniversalClient
	prefix string
	window int
	log    *slog.Logger

	incarnation atomic.Uint64
	beforeAck   func(ctx context.Context, consumer uint32, ids []ident.ID) error // may be nil

	mu     sync.RWMutex
	epochs map[uint32]string // the last known epoch of each consumer
	links  replayLinks
	behind map[uint32]bool // the store may have older jobs than any offered one, see Behind
	onLost []func(consumer uint32)
}

// New returns a queue on client. The caller closes the client.
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
		o.Runs.OnChange(func() { q.incarnation.Add(1) })
	}
	return q
}

// Incarnation increments when the process's knowledge about Redis may have become wrong: a
// consumer's epoch was adopted, or another Redis process answers. A job may be sent
// without a question to the store only if this process enqueued it as Fresh in the
// current incarnation. The caller reads the incarnation before it calls Enqueue, and
// compares it when the job is claimed.
func (q *Queue) Incarnation() uint64 { return q.incarnation.Load() }

// OnLost registers a function for consumers whose state in Redis was lost or replaced, or
// is seen for the first time. The store must then be scanned for their jobs. The Queue
// calls f once per adopted epoch, on the goroutine that noticed it, before it repeats the
// call. f must neither block nor call the Queue.
func (q *Queue) OnLost(f func(consumer uint32)) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.onLost = append(q.onLost, f)
}

// Keys returns the names of a consumer's keys (ready, delayed, leased, meta,
// control), for inspection.
func (q *Queue) Keys(consumer uint32) []string { return q.keys(consumer)[:len(keyNames)] }

// Window returns how many ready jobs of one consumer Redis keeps.
func (q *Queue) Window() int { return q.window }

// Epoch returns the last known epoch of a consumer, "" before the first contact.
func (q *Queue) Epoch(consumer uint32) string {
	q.mu.RLock()
	defer q.mu.RUnlock()
	return q.epochs[consumer]
}

// adopt replaces the epoch that a stale call was sent with by the current one. If another
// goroutine was faster, adopt does nothing: that goroutine reports the loss, and a repeated
// call with a wrong epoch is stale again.
func (q *Queue) adopt(consumer uint32, known, current string) {
	q.mu.Lock()
	if q.epochs[consumer] != known || known == current {
		q.mu.Unlock()
		return
	}
	q.epochs[consumer] = current
	q.incarnation.Add(1)
	callbacks := q.onLost[:len(q.onLost):len(q.onLost)]
	q.mu.Unlock()
	if known != "" {
		q.log.Warn("redis state of a consumer was lost or replaced", "consumer", consumer)
	}
	for _, f := range callbacks {
		f(consumer)
	}
}

// Forget removes the keys of a consumer that was deleted. A call that is still under way may make
// some of them again; they harm nothing, because the number of a consumer is never given away
// again.
func (q *Queue) Forget(ctx context.Context, consumer uint32) error {
	keys := q.Keys(consumer)
	if !q.replays(consumer) { // a replay has the workers of its consumer
		keys = append(keys, presenceKey(q.prefix, consumer))
	}
	if err := q.client.Unlink(ctx, keys...).Err(); err != nil {
		return failedTo("forget", err)
	}
	q.mu.Lock()
	delete(q.epochs, consumer)
	delete(q.behind, consumer)
	q.mu.Unlock()
	return nil
}

// newEpoch returns 80 random bits. Epochs never repeat, and therefore tokens do not either.
func newEpoch() string {
	var b [10]byte
	if _, err := rand.Read(b[:]); err != nil {
		panic(fmt.Sprintf("redisq: no randomness: %v", err)) // crypto/rand never returns an error
	}
	return strings.ToLower(base32.HexEncoding.EncodeToString(b[:]))
}
