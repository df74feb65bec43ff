package simulation

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/feature/exchange"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/model/policy"
	"github.com/penstock-broker/penstock/internal/tool/egress"
)

// senderURL is where the producer takes the responses to its messages.
const senderURL = "http://sender.example/"

// receivers are the consumers that answer with responses, at once or later. They outlive every
// broker.
type receivers struct {
	mu      sync.Mutex
	given   map[jobKey][]string // the responses of a consumer to a message
	results map[string]result   // by URL
}

// A result is a response that a receiver works on.
type result struct {
	k       jobKey
	readyAt time.Time
	text    string
}

// answer makes a response of a consumer to a message. Each is another one.
func (r *receivers) answer(k jobKey, payload []byte) string {
	text := fmt.Sprintf("response %d of consumer %d to %s", len(r.given[k])+1, k.consumer, payload)
	r.given[k] = append(r.given[k], text)
	return text
}

// gave reports whether the response is one of the consumer.
func (r *receivers) gave(k jobKey, text string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Contains(r.given[k], text)
}

// responding is the part of the policy of a push consumer that has responses on.
func responding(r *chance, set map[string]string) {
	if !r.hit(700) {
		return
	}
	set["responses"] = "callback"
	if r.hit(500) {
		set["async"] = "true"
	}
}

// PostKeeping is Post to a consumer that responds.
func (t target) PostKeeping(req *fasthttp.Request, timeout time.Duration, _ *egress.Keep) egress.Result {
	res := t.Post(req, timeout)
	if res.Status != http.StatusOK {
		return res
	}
	w := t.l.w
	job := string(req.Header.Peek("X-Broker-Job-ID"))
	id, ok := messageOf(job)
	if !ok {
		return res
	}
	k, r := jobKey{t.consumer, id}, &w.receivers
	r.mu.Lock()
	defer r.mu.Unlock()
	if !policies.Of(w.store.consumer(t.consumer).Policy).Async {
		res.Response = &egress.Response{Headers: []byte("Content-Type:" + contentType + "\n"),
			Body: []byte(r.answer(k, req.Body()))}
		return res
	}
	at := fmt.Sprintf("http://k%d.example/result/%s", t.consumer, job)
	if _, known := r.results[at]; !known {
		later := draw(w.seed, word("result"), uint64(t.consumer), word(job))
		r.results[at] = result{k, time.Now().Add(later.between(0, 1500*time.Millisecond)), r.answer(k, req.Body())}
	}
	res.Status, res.Response = http.StatusAccepted, &egress.Response{Location: "result/" + job}
	return res
}

// polls is how one life asks for results.
type polls struct{ l *life }

func (p polls) RoundTrip(req *http.Request) (*http.Response, error) {
	l, r := p.l, &p.l.w.receivers
	r.mu.Lock()
	found, known := r.results[req.URL.String()]
	r.mu.Unlock()
	if !known {
		l.w.checker.report(none, "I17: broker %d asks for a result at %s, where none is", l.no, req.URL)
		return nil, errConnection
	}
	way, rates := l.chance("poll", found.k.consumer), l.w.plan.consumer
	if !l.awake() || !l.sleep(req.Context(), way.between(20*time.Microsecond, 2*time.Millisecond)) || l.w.faulty() &&
		way.hit(rates.refuse) {
		return nil, errConnection
	}
	status, text := http.StatusAccepted, ""
	switch {
	case l.w.faulty() && way.hit(rates.fail):
		status = http.StatusInternalServerError
	case !time.Now().Before(found.readyAt):
		status, text = http.StatusOK, found.text
	}
	l.note(fmt.Sprintf("polled: %d", status), found.k.consumer, found.k.id, "")
	if l.w.faulty() && way.hit(l.w.plan.crash) {
		l.crash("after a poll")
	}
	if !l.sleep(req.Context(), way.between(20*time.Microsecond, 2*time.Millisecond)) || !l.awake() || l.w.faulty() &&
		way.hit(rates.lost) {
		return nil, errConnection
	}
	return &http.Response{StatusCode: status, ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {contentType}},
		Body:   io.NopCloser(strings.NewReader(text)), ContentLength: int64(len(text)), Request: req}, nil
}

func noRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// newResponses is the part of a broker that carries responses back.
func (b *broker) newResponses(store storeSeam) *exchange.Worker {
	web := &http.Client{Transport: polls{b.life}, CheckRedirect: noRedirect}
	return exchange.NewWorker(exchange.Options{
		Store: store, Catalogue: b.catalogue, Policies: policies, Owns: b.node.Owns, NowMs: b.node.NowMs,
		Publish: b.plane.ForwardAll, Charge: b.queue.Regrant, Answered: func(uint32, ident.ID) {},
		Web: web, Fetch: web, Agent: "simulation", Token: "X-Broker-Consumer-Token", Log: silent,
	})
}

// answered tells the worker of an exchange that this broker stored.
func (b *broker) answered(consumer uint32, _ ident.ID) {
	if k := b.catalogue.ConsumerByNo(consumer); k != nil && b.responses != nil &&
		policies.Of(k.Policy).Responses == policy.ResponsesCallback {
		b.responses.Stored(k.Account())
	}
}

// replied checks a reply that reaches the producer (I17).
func (w *world) replied(h *fasthttp.RequestHeader, id ident.ID, body string) bool {
	key := exchange.ParseReplyID(string(h.Peek("X-Broker-Message-ID")))
	if key.ConsumerNo == 0 {
		w.checker.report(id, "I17: the producer got a reply that names no exchange: %s", h.String())
		return false
	}
	k := w.store.consumer(key.ConsumerNo)
	row := w.store.exchange(jobKey{key.ConsumerNo, key.ID})
	found := w.store.messagesByID(k.ChannelNo, []ident.ID{key.ID})
	switch {
	case len(found) == 0 && w.plan.retention > 0: // removed while a copy was in flight
		return true
	case row == nil || string(row.Body) != body || !w.receivers.gave(jobKey{k.No, key.ID}, body):
		w.checker.report(key.ID, "I17: the producer got %q, which is not the stored response of consumer %d", body, k.No)
	case len(found) == 0 || string(h.Peek(exchange.InReplyTo)) != found[0].PublicID() ||
		string(h.Peek(exchange.ConsumerID)) != k.ID ||
		string(h.Peek(exchange.ResponseStatus)) != strconv.Itoa(http.StatusOK):
		w.checker.report(key.ID, "I17: the producer got headers of another reply: %s", h.String())
	default:
		return true
	}
	return false
}

// resend redrives the dead replies, after the last fault: their exchanges wait for them.
func (w *world) resend() {
	b := w.broker(0)
	if !w.plan.responses || b == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 4*time.Second)
	defer cancel()
	for _, k := range w.store.consumers() {
		if k.CallbackURL == senderURL && w.store.hasDead(k.No) {
			_, _ = b.service.RedriveAll(ctx, k.No)
		}
	}
}

// checkResponses checks that each message which a consumer with responses took is answered, and that
// the producer has the response (I17). unfinished has found no exchange under way.
func (w *world) checkResponses() {
	s := w.store
	replies := map[durable.ExchangeKey]*durable.Message{}
	p := s.look()
	for _, ch := range s.channels() {
		if ident.RepliesTo(ch.ID) == 0 {
			continue
		}
		for _, m := range p.of(ch.No) {
			replies[exchange.ParseReplyID(m.Key)] = m
		}
	}
	for _, k := range s.consumers() {
		if policies.Of(k.Policy).Responses != policy.ResponsesCallback {
			continue
		}
		for _, m := range p.of(k.ChannelNo) {
			key := jobKey{k.No, m.ID}
			e, reply := s.exchange(key), replies[durable.ExchangeKey{ConsumerNo: k.No, ID: m.ID}]
			switch {
			case e == nil && p.state(key).Status != durable.Delivered:
			case e == nil:
				w.checker.report(m.ID, "I17: consumer %d took a message, and its response is lost", k.No)
			case e.State != durable.ResponseDelivered:
				w.checker.report(m.ID, "I17: the exchange with consumer %d ended as %s: %s", k.No, e.State, e.Reason)
			case !w.receivers.gave(key, string(e.Body)):
				w.checker.report(m.ID, "I17: consumer %d did not give the response %q", k.No, e.Body)
			case reply == nil && w.plan.retention == 0, reply != nil && string(reply.Payload) != string(e.Body):
				w.checker.report(m.ID, "I17: the response of consumer %d is said to be delivered, and its reply is %+v",
					k.No, reply)
			}
		}
	}
}
