//go:build unix

package chaos

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"time"
)

// Settings of the brokers of a campaign: short enough that every time-out ends within a minute,
// long enough that a busy machine does not look like a fault.
const (
	deliveryTimeout = 4 * time.Second
	stopTimeout     = 4 * time.Second
	rationalDelay   = time.Second
	maxRetries      = 7
	retryBackoff    = "200ms,500ms,1s"
	retryMaxDelay   = 2 * time.Second
	// retention is longer than a producer keeps asking about a message.
	retention = 90 * time.Second
	// pullVisible is how long a claimed pull job is hidden.
	pullVisible = stopTimeout + rationalDelay
	maxAttempts = maxRetries + 1
)

// A behaviour is how a consumer answers its broker.
type behaviour string

const (
	steady     behaviour = "steady"     // answers 204
	flaky      behaviour = "flaky"      // some 500, closed connections, redirects, huge answers
	limited    behaviour = "limited"    // some 429 and 503, with good and bad Retry-After
	hanging    behaviour = "hanging"    // some answers come too late or never
	responding behaviour = "responding" // answers with a response
	later      behaviour = "later"      // accepts, and has the response at a result that is polled
	single     behaviour = "single"     // pull worker at the single routes
	batched    behaviour = "batched"    // pull worker at the batch routes
)

func (b behaviour) pull() bool { return b == single || b == batched }

// A consumer is a consumer of the plan; its number is its index there.
type consumer struct {
	Channel int // index
	ID      string
	Does    behaviour
}

// A plan has the facts that every process of a campaign knows.
type plan struct {
	Channels  []string
	Weights   []int // of the channels, for producers
	Consumers []consumer
	Producer  string
	Token     string   // of everything
	Brokers   []string // host:port of each, as clients see it
	Doors     []string // host:port of each broker itself, past the links
	Sinks     string   // host:port of the push endpoints
	Rate      float64  // messages per second
	Deaths    float64  // clients per second that die in the middle of something
	Seed      uint64

	Neighbours int    // goroutines of greedy neighbours
	Inside     string // host:port of their server
}

// consumerThat returns the first consumer that does something.
func (p *plan) consumerThat(does behaviour) int {
	return slices.IndexFunc(p.Consumers, func(k consumer) bool { return k.Does == does })
}

// flakyChannel gives each producer message IDs of its own, and batchedChannel acknowledges repeats.
// journalChannel has a journal, a consumer with a filter, and messages for one consumer alone.
const (
	flakyChannel   = "chaos-flaky"
	batchedChannel = "chaos-batched"
	journalChannel = "chaos-limited"
)

// newPlan returns the fixed cast: every behaviour on a channel with a steady
// neighbour that must not suffer from it.
func newPlan(rate float64, seed uint64) *plan {
	return &plan{
		Channels: []string{flakyChannel, journalChannel, "chaos-single", batchedChannel, policyChannel, answersChannel},
		Weights:  []int{30, 30, 5, 21, 8, 6},
		Consumers: []consumer{
			{0, "steady-0", steady}, {0, "flaky", flaky},
			{1, "steady-1", steady}, {1, "limited", limited},
			{2, "hanging", hanging}, {2, "single", single},
			{3, "steady-3", steady}, {3, "batched", batched},
			{4, ratedID, flaky}, {4, orderedID, flaky}, {4, mortalID, flaky}, {4, pausingID, steady},
			{1, filteredID, steady},
			{5, answeringID, responding}, {5, laterID, later},
		},
		Producer: "chaos", Token: "chaos-token", Rate: rate, Seed: seed,
	}
}

func (p *plan) path(k int) string {
	return "/channel/" + p.Channels[p.Consumers[k].Channel] + "/consumer/" + p.Consumers[k].ID
}

// concerns reports whether a message has a job for a consumer.
func (p *plan) concerns(k int, s *Sent) bool {
	c := p.Consumers[k]
	return c.Channel == s.Channel && (s.To == "" || s.To == c.ID) && (c.ID != filteredID || s.Priority == 0)
}

// position is the position of a consumer in its channel.
func (p *plan) position(k int) (n int) {
	for _, c := range p.Consumers[:k] {
		if c.Channel == p.Consumers[k].Channel {
			n++
		}
	}
	return n
}

func (p *plan) write(path string) error {
	b, err := json.Marshal(p)
	if err != nil {
		return err
	}
	return os.WriteFile(path, b, 0o600)
}

func readPlan(path string) (*plan, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	p := &plan{}
	return p, json.Unmarshal(b, p)
}

// Every body begins with its sequence number as seqBytes hexadecimal digits, which identifies it
// everywhere.
const seqBytes = 10

// incarnation is the distance between the first sequence numbers of a producer and of its
// successor. The mortals and each kind of victim have a range of their own, since a victim lives a
// short time and its successor starts soon after it.
const (
	incarnation       = 1 << 28
	firstMortal       = 1 << 38
	firstVictim       = 1 << 39
	victimKind        = 1 << 36
	victimIncarnation = 1 << 20
)

// parseSeq reads the sequence number that a body begins with.
func parseSeq(body []byte) (int64, bool) {
	if len(body) < seqBytes {
		return 0, false
	}
	n, err := strconv.ParseInt(string(body[:seqBytes]), 16, 64)
	return n, err == nil
}

// newBody makes the body of a message: mostly small, some of 64 KiB, half of them text and half
// random bytes.
func newBody(rng *rand.Rand, seq int64) []byte {
	var size int
	switch n := rng.IntN(1000); {
	case n < 700:
		size = seqBytes + rng.IntN(247)
	case n < 950:
		size = 256 + rng.IntN(2<<10)
	case n < 995:
		size = 2<<10 + rng.IntN(14<<10)
	default:
		size = 64 << 10
	}
	body := fmt.Appendf(make([]byte, 0, size+8), "%0*x", seqBytes, seq)
	text := rng.IntN(2) == 0
	for len(body) < size {
		body = binary.LittleEndian.AppendUint64(body, rng.Uint64())
	}
	body = body[:size]
	if text {
		for i := seqBytes; i < size; i++ {
			body[i] = 'a' + body[i]%26
		}
	}
	return body
}

// hashOf is the checksum of a body, as the store computes it, too.
func hashOf(body []byte) string {
	sum := sha256.Sum256(body)
	return hex.EncodeToString(sum[:8])
}

// poisoned reports whether no pull worker of the single routes ever finishes the message. Its
// leases end, one after the other, until it is dead.
func poisoned(seq int64) bool { return seq%997 == 0 }
