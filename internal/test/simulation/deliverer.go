package simulation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/hotpath/push"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/tool/egress"
)

// A deliverer is the push consumers as one life reaches them.
type deliverer struct{ l *life }

// Target reads the number of the consumer from its URL.
func (d deliverer) Target(_ egress.Rule, rawURL, _ string) (push.Target, error) {
	if rawURL == senderURL {
		consumers := d.l.w.store.consumers()
		return push.Posting(target{d.l, consumers[slices.IndexFunc(consumers, func(k durable.Consumer) bool {
			return k.CallbackURL == senderURL
		})].No}), nil
	}
	no, err := strconv.Atoi(strings.TrimSuffix(strings.TrimPrefix(rawURL, "http://k"), ".example/"))
	if err != nil {
		return nil, fmt.Errorf("simulation: callback %q: %w", rawURL, err)
	}
	return push.Posting(target{d.l, uint32(no)}), nil
}

type target struct {
	l        *life
	consumer uint32
}

var errConnection = errors.New("simulation: connection refused")

// A manner is how a consumer treats one request.
type manner struct {
	status     int           // 0: no answer ever
	took       time.Duration // until the answer
	retryAfter time.Duration
	accepts    bool // it does the work
	lost       bool // its answer is lost
	refuses    bool // it is not there
}

func (t target) manner(job string, attempt int) manner {
	r := draw(t.l.w.seed, word("consumer"), uint64(t.consumer), word(job), uint64(attempt), uint64(t.l.no))
	m := manner{status: 200, took: r.between(100*time.Microsecond, 3*time.Millisecond), retryAfter: -1, accepts: true}
	if !t.l.w.faulty() {
		return m
	}
	p := t.l.w.plan.consumer
	gone := draw(t.l.w.seed, word("gone"), uint64(t.consumer), word(job), uint64(attempt), uint64(t.l.no))
	switch {
	case t.l.w.plan.holds && gone.hit(20):
		m.status, m.accepts = 410, false
	case r.hit(p.refuse):
		return manner{refuses: true}
	case r.hit(p.fail):
		m.status, m.accepts = 500, false
	case r.hit(p.throttle):
		m.status, m.accepts, m.retryAfter = 429, false, r.between(0, 3*time.Second)
	case r.hit(p.slow):
		m.took = r.between(20*time.Millisecond, deliveryTimeout-10*time.Millisecond)
	case r.hit(p.hang):
		m.status, m.accepts, m.lost = 0, r.hit(500), true
	case r.hit(p.lost):
		m.lost = true
	}
	return m
}

// Post is one request: it travels, the consumer works, the answer travels.
func (t target) Post(req *fasthttp.Request, timeout time.Duration) egress.Result {
	start := time.Now()
	res := t.post(req, start.Add(timeout))
	res.Took = time.Since(start)
	return res
}

func (t target) post(req *fasthttp.Request, deadline time.Time) egress.Result {
	closed := egress.Result{RetryAfter: -1, Err: egress.ErrClosed}
	l := t.l
	job, attempt := string(req.Header.Peek("X-Broker-Job-ID")), 0
	if n, err := strconv.Atoi(string(req.Header.Peek("X-Broker-Attempt"))); err == nil {
		attempt = n
	}
	m := t.manner(job, attempt)
	way := l.chance("post", t.consumer)
	ctx := context.Background()
	if !l.awake() || !l.sleep(ctx, way.between(20*time.Microsecond, 500*time.Microsecond)) {
		return closed
	}
	if l.w.hangs(t.consumer) {
		return t.hang(t.arrive(req, job, attempt), job, attempt, deadline)
	}
	if m.refuses {
		return egress.Result{RetryAfter: -1, Err: errConnection}
	}
	for l.w.flaw == hangsSpread && l.w.hanging.Load() > 0 && l.sleep(ctx, 10*time.Millisecond) {
	}
	h := t.arrive(req, job, attempt)
	if m.accepts && h != nil {
		l.w.checker.accepted(h, m.lost)
	}
	if m.status == 410 && h != nil {
		l.w.checker.uncharged(h)
	}
	if l.w.faulty() && way.hit(l.w.plan.crash) {
		l.crash("after POST")
		return closed
	}
	wait := m.took
	if m.status == 0 {
		wait = time.Until(deadline)
	}
	if !l.sleep(ctx, wait) || !l.awake() {
		return closed
	}
	switch {
	case m.status == 0, time.Now().After(deadline):
		if h != nil {
			l.w.checker.late(h)
		}
		return egress.Result{RetryAfter: -1, Err: egress.ErrTimeout, Sent: true}
	case m.lost:
		return egress.Result{RetryAfter: -1, Err: egress.ErrNoAnswer, Sent: true}
	}
	return egress.Result{Status: m.status, RetryAfter: m.retryAfter, Sent: true}
}

// arrive checks that the request is the message it says it is (I3, I4).
func (t target) arrive(req *fasthttp.Request, job string, attempt int) *handed {
	w := t.l.w
	k := w.store.consumer(t.consumer)
	parsed, err := ident.Parse(job)
	id, pos, ok := parsed.Split()
	if err != nil || !ok || pos != k.Position {
		w.checker.report(id, "I4: consumer %d got job %q", k.No, job)
		return nil
	}
	w.checkHeld(k, id)
	w.checker.checkRate(t.l, k)
	h := &req.Header
	ch := w.store.channel(k.ChannelNo)
	if ident.Reserved(ch.ID) {
		if !w.replied(h, id, string(req.Body())) {
			return nil
		}
		return w.checker.hand(t.l, k, id, attempt)
	}
	if string(h.Peek("X-Broker-Channel-ID")) != ch.ID || string(h.Peek("X-Broker-Consumer-ID")) != k.ID ||
		string(h.Peek("X-Broker-Consumer-Token")) != k.Token || string(h.ContentType()) != contentType ||
		string(h.Peek("X-Trace")) != "x-"+string(req.Body()) {
		w.checker.report(id, "I4: consumer %d got headers of another: %s", k.No, h.String())
		return nil
	}
	if replay := string(h.Peek("X-Broker-Replay")); replay != "" {
		copied, ok := w.copied(k, id, replay)
		if !ok {
			return nil
		}
		k = copied
	}
	w.arrived(k, id, string(h.Peek("X-Broker-Message-ID")), string(h.Peek("X-Broker-Message-Priority")),
		string(req.Body()))
	w.checkPrompt(k, id, attempt)
	return w.checker.hand(t.l, k, id, attempt)
}

// arrived checks a message that a consumer was given against what is stored and
// what was published.
func (w *world) arrived(k durable.Consumer, id ident.ID, publicID, priority, payload string) {
	found := w.store.messagesByID(k.ChannelNo, []ident.ID{id})
	if len(found) == 0 {
		w.checker.report(id, "I3: consumer %d got a message that is not stored", k.No)
		return
	}
	m := found[0]
	if string(m.Payload) != payload || m.PathID() != publicID || strconv.Itoa(m.Priority) != priority ||
		!concerns(m.ID, m.Audience, k) {
		w.checker.report(id, "I4: consumer %d got %q as %q with priority %s; stored is %q with priority %d for %d consumers",
			k.No, payload, publicID, priority, m.Payload, m.Priority, m.Audience)
	}
	w.checkOrder(k, &m)
}
