//go:build unix

package chaos

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock-broker/penstock/internal/model/problem"
)

const (
	// publishers bounds the posts under way. It is large, so that posts delayed by a fault do not
	// stop the others.
	publishers = 96
	// postTimeout is longer than a broker takes to answer 503.
	postTimeout = 8 * time.Second
	// finishWithin is how long a stopping producer keeps asking about posts with an unknown
	// outcome.
	finishWithin = 30 * time.Second
	// batchEvery is how many single posts there are for each batch of batchLines.
	batchEvery = 40
	batchLines = 20
	// One single post in scheduleEvery is a scheduled message, due in between one second and
	// scheduleWithin more.
	scheduleEvery  = 12
	scheduleWithin = 6 * time.Second
	// One single post in addressEvery of journalChannel is for one of its consumers alone.
	addressEvery = 8
)

// The clients that live, as a Try names them.
const (
	singleClient = "post"
	batchClient  = "batch"
)

// The verdicts on a message after the answer to a post.
const (
	acked   = "A" // 201, 202, or 200 or 409 duplicate_message_id: it was there already
	refused = "R" // stated as not stored
	unknown = "U" // no answer, or an answer that says that the outcome is unknown
)

// Lines of the producer's journal: "I" is written before the first post of a
// message, "P" before each further one, "T" after each answer or the want of one.
//
//	I seq channel identity priority size hash time due to
//	P seq
//	T seq verdict status code broker sent answered client

// A producer publishes until it is stopped.
type producer struct {
	plan    *plan
	log     *journal
	seq     atomic.Int64
	posts   atomic.Int64
	clients []*http.Client // one for each broker
	under   []atomic.Int64 // posts under way, by broker
}

// A post is one message to be posted.
type post struct {
	seq      int64
	channel  int
	priority int
	identity identity
	order    string    // ordering key, may be empty
	due      time.Time // of a scheduled message, else zero
	to       string    // the only consumer that it is for; empty: all
	body     []byte
}

func newProducer(plan *plan, log *journal, from int64) *producer {
	p := &producer{plan: plan, log: log, under: make([]atomic.Int64, len(plan.Brokers))}
	p.seq.Store(from)
	for range plan.Brokers {
		p.clients = append(p.clients, &http.Client{Timeout: postTimeout, CheckRedirect: noRedirect,
			Transport: &http.Transport{
				MaxIdleConnsPerHost: publishers, DisableCompression: true,
				DialContext: (&net.Dialer{Timeout: 2 * time.Second}).DialContext}})
	}
	return p
}

func (p *producer) run(ctx context.Context) {
	due := make(chan struct{}, publishers)
	var wg sync.WaitGroup
	for i := range publishers {
		rng := rand.New(rand.NewPCG(p.plan.Seed, uint64(i)))
		wg.Go(func() {
			for range due {
				switch n := p.posts.Add(1); {
				case n%bulkEvery == 0:
					p.bulk(ctx, rng)
				case n%batchEvery == 0:
					p.batch(ctx, rng)
				default:
					p.publish(ctx, rng)
				}
			}
		})
	}
	pace(ctx, p.plan.Rate/(1+float64(batchLines)/batchEvery), due)
	close(due)
	wg.Wait()
	p.Close()
}

// Close ends the connections that are kept.
func (p *producer) Close() {
	for _, c := range p.clients {
		c.CloseIdleConnections()
	}
}

// single makes a message that is posted alone, some with an Idempotency-Key.
func (p *producer) single(rng *rand.Rand, channel int) (post, *flush) {
	return p.compose(rng, post{channel: channel, identity: identity(rng.IntN(3))})
}

// soon is when a new message of the channel is due: one in scheduleEvery is scheduled. Those of
// policyChannel are not, because their order is that of their posts.
func (p *producer) soon(rng *rand.Rand, channel int) time.Time {
	if p.plan.Channels[channel] == policyChannel || rng.IntN(scheduleEvery) > 0 {
		return time.Time{}
	}
	return time.Now().Add(time.Second + rand.N(scheduleWithin)).UTC().Truncate(time.Millisecond)
}

// addressee is the consumer that a new message of the channel is for, empty for all.
func (p *producer) addressee(rng *rand.Rand, channel int) string {
	if p.plan.Channels[channel] != journalChannel || rng.IntN(addressEvery) > 0 {
		return ""
	}
	var ids []string
	for _, c := range p.plan.Consumers {
		if c.Channel == channel {
			ids = append(ids, c.ID)
		}
	}
	return ids[rng.IntN(len(ids))]
}

// compose completes a message and writes its intent to disk.
func (p *producer) compose(rng *rand.Rand, m post) (post, *flush) {
	m.seq = p.seq.Add(1)
	if rng.IntN(10) == 0 {
		m.priority = 1 + rng.IntN(1023)
	}
	m.body, m.order = newBody(rng, m.seq), p.plan.orderingKey(m.channel, m.seq)
	return m, p.log.Add("I", m.seq, m.channel, int(m.identity), m.priority, len(m.body), hashOf(m.body),
		time.Now(), m.due, orDash(m.to))
}

func (p *producer) channel(rng *rand.Rand) int {
	n := rng.IntN(100)
	for i, w := range p.plan.Weights {
		if n -= w; n < 0 {
			return i
		}
	}
	return 0
}

// publish posts one message, and repeats the post if its ID makes that safe.
func (p *producer) publish(ctx context.Context, rng *rand.Rand) {
	channel := p.channel(rng)
	m, intent := p.compose(rng, post{channel: channel, identity: identity(rng.IntN(3)), due: p.soon(rng, channel),
		to: p.addressee(rng, channel)})
	if intent.Wait() != nil {
		return // the disk is full: the rig sees that
	}
	broker := p.pick(int(m.seq))
	if m.identity != noIdentity && rng.IntN(50) == 0 { // the same message to two brokers at once
		if p.further(m) != nil {
			return
		}
		var both sync.WaitGroup
		both.Go(func() { p.post(m, (broker+1)%len(p.plan.Brokers)) })
		defer both.Wait()
	}
	stop, cancel := lateContext(ctx, finishWithin)
	defer cancel()
	for p.post(m, broker) && p.repeat(stop, rng, m) {
		broker = p.pick(broker + 1)
	}
}

// repeat waits a little and has on disk that the messages are posted once more. It
// returns false where they are not to be.
func (p *producer) repeat(stop context.Context, rng *rand.Rand, posts ...post) bool {
	select {
	case <-stop.Done():
		return false
	case <-time.After(time.Duration(50+rng.IntN(200)) * time.Millisecond):
	}
	return p.further(posts...) == nil
}

// further has on disk that the messages are posted once more.
func (p *producer) further(posts ...post) error {
	var last *flush
	for _, m := range posts {
		last = p.log.Add("P", m.seq)
	}
	if last == nil {
		return nil
	}
	return last.Wait()
}

// told records the answer to a client's post of a message; status 0 means no answer.
func (p *producer) told(m post, v lineVerdict, client string, broker int, sent time.Time) {
	p.log.Add("T", m.seq, v.verdict, v.status, orDash(v.code), broker, sent, time.Now(), client)
}

// lateContext ends some time after ctx does.
func lateContext(ctx context.Context, grace time.Duration) (context.Context, context.CancelFunc) {
	late, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(grace, cancel) })
	return late, func() { stop(); cancel() }
}

// post sends the message once and reports whether to send it again. It does for a request that
// never left this process, and for a message with an ID and no definite answer.
func (p *producer) post(m post, broker int) (again bool) {
	path := "/channel/" + p.plan.Channels[m.channel] + "/broadcast"
	req, err := http.NewRequest(http.MethodPost, "http://"+p.plan.Brokers[broker]+path, bytes.NewReader(m.body))
	if err != nil {
		return false
	}
	// net/http would repeat a request with an Idempotency-Key by itself where the connection breaks, and the
	// journal would have one answer of two.
	req.GetBody = nil
	p.identify(req)
	req.Header.Set("Content-Type", "application/octet-stream")
	req.Header.Set("X-Broker-Message-Priority", strconv.Itoa(m.priority))
	if name, value := m.header(); name != "" {
		req.Header.Set(name, value)
	}
	if m.order != "" {
		req.Header.Set("X-Broker-Ordering-Key", m.order)
	}
	if !m.due.IsZero() {
		req.Header.Set("X-Broker-Scheduled-For", m.due.Format(time.RFC3339Nano))
	}
	if m.to != "" {
		req.Header.Set("X-Broker-Consumers", m.to)
	}
	p.under[broker].Add(1)
	defer p.under[broker].Add(-1)
	start := time.Now()
	res, err := p.clients[broker].Do(req)
	if err != nil {
		verdict, sent := classifyError(err)
		p.told(m, lineVerdict{verdict: verdict}, singleClient, broker, start)
		return m.identity != noIdentity || !sent
	}
	body, _ := io.ReadAll(io.LimitReader(res.Body, 64<<10)) // the status decides
	_ = res.Body.Close()
	var problem struct{ Code string }
	_ = json.Unmarshal(body, &problem) // a success has no problem document
	code := problem.Code
	if res.Header.Get("Idempotent-Replayed") == "true" {
		code = codeReplayed
	}
	p.told(m, lineVerdict{classify(res.StatusCode, code), res.StatusCode, code}, singleClient, broker, start)
	return m.identity != noIdentity && res.StatusCode >= 500
}

func (p *producer) identify(req *http.Request) {
	req.Header.Set("X-Broker-Channel-Token", p.plan.Token)
	req.Header.Set("X-Broker-Producer-ID", p.plan.Producer)
	req.Header.Set("X-Broker-Producer-Token", p.plan.Token)
}

// pick returns the broker whose turn it is, or the next one with no more than its share of the
// posts under way. Like a load balancer that counts connections, it prevents a sleeping broker from
// blocking every producer.
func (p *producer) pick(turn int) int {
	share := int64(publishers / (len(p.under) + 1))
	for i := range p.under {
		if b := (turn + i) % len(p.under); p.under[b].Load() < share {
			return b
		}
	}
	return turn % len(p.under)
}

func keyOf(seq int64) string { return fmt.Sprintf("key-%x", seq) }

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// An identity is what makes it safe to post a message again.
type identity int

const (
	noIdentity   identity = iota
	byMessageID           // X-Broker-Message-ID
	byRequestKey          // Idempotency-Key
)

// header returns the header with the identity of a message, if it has one.
func (m *post) header() (name, value string) {
	switch m.identity {
	case byMessageID:
		return "X-Broker-Message-ID", keyOf(m.seq)
	case byRequestKey:
		return "Idempotency-Key", `"` + keyOf(m.seq) + `"`
	}
	return "", ""
}

// codeDuplicate is the error code of a 409 for a message that is already stored. codeReplayed stands
// for Idempotent-Replayed of a 200 or 201. codeTooSoon is the code of a 412 for a scheduled message.
const (
	codeDuplicate = "duplicate_message_id"
	codeReplayed  = "replayed"
	codeTooSoon   = "schedule_too_soon"
)

// classify returns the verdict on an answer, as the API page defines it.
func classify(status int, code string) string {
	switch {
	case status == http.StatusCreated, status == http.StatusAccepted, status == http.StatusOK,
		status == http.StatusConflict && code == codeDuplicate:
		return acked
	case problem.NothingStored(status, code):
		return refused
	}
	return unknown
}

// classifyError distinguishes a request that never left from one that may have arrived.
func classifyError(err error) (verdict string, sent bool) {
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "dial" {
		return refused, false
	}
	return unknown, true
}
