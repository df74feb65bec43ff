package simulation

import (
	"encoding/json"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/ident"
)

// none is no ID.
var none ident.ID

const contentType = "text/x-simulation"

// A post is one message of a producer and what it was told.
type post struct {
	channel  uint32
	producer int
	payload  string
	key      string // its message ID, "" when it has none
	ordering string // its ordering key, "" when it has none
	priority int
	dueMs    int64 // of a scheduled message, by the store's clock; else 0
	tries    []try
}

// A try is one publish of a message and its answer.
type try struct {
	sent   time.Duration
	slot   int    // of the broker
	came   bool   // to a broker, which may have stored it
	status int    // 0: no answer
	code   string // of a problem
	id     string // of the message or the receipt, from Location
}

// unknown tells whether the message may be stored although it was not said so.
func (t try) unknown() bool {
	return t.status == 0 || t.code == "outcome_unknown"
}

// stored tells whether it was said that the message is stored.
func (t try) stored() bool { return t.status == 201 || t.code == "duplicate_message_id" }

// taken tells whether it was said that a journal has the message.
func (t try) taken() bool { return t.status == 202 }

// produce publishes, with and without message IDs, and repeats what is unknown.
func (w *world) produce(channel uint32, producer int) {
	r := draw(w.seed, word("produce"), uint64(channel), uint64(producer))
	pause := 2 * w.plan.active / time.Duration(w.plan.messages+1) * 9 / 20
	for n := range w.plan.messages {
		time.Sleep(r.between(0, pause))
		p := &post{channel: channel, producer: producer, payload: fmt.Sprintf("message %d of producer %d for channel %d", n,
			producer, channel)}
		if r.hit(500) {
			p.key = fmt.Sprintf("key-%d-%d", producer, n)
		}
		if r.hit(300) {
			p.priority = 1 + r.below(3)
		}
		if r.hit(30) {
			p.priority = 5000 // refused
		}
		keys := draw(w.seed, word("ordering"), uint64(channel), uint64(producer), uint64(n))
		p.ordering = w.orderingKey(&keys)
		later := draw(w.seed, word("schedule"), uint64(channel), uint64(producer), uint64(n))
		if w.plan.schedules && later.hit(400) {
			p.ordering, p.dueMs = "", w.store.nowMs()+later.between(200*time.Millisecond, 4*time.Second).Milliseconds()
		}
		w.mu.Lock()
		w.published = append(w.published, p)
		w.byPayload[p.payload] = p
		w.mu.Unlock()
		w.publish(p, &r)
	}
}

// publish tries until the answer is known, if a repeat is possible.
func (w *world) publish(p *post, r *chance) {
	for range 8 {
		t := try{sent: w.now()}
		if b := w.broker(r.below(w.plan.brokers)); b != nil {
			b.broadcast(p, &t)
		}
		w.mu.Lock()
		p.tries = append(p.tries, t)
		w.mu.Unlock()
		w.told("published", fmt.Sprintf("%q: %d %s %s", p.payload, t.status, t.code, t.id))
		if t.stored() || t.taken() || t.status/100 == 4 || p.key == "" {
			return
		}
		time.Sleep(r.between(50*time.Millisecond, 600*time.Millisecond))
	}
}

// request makes a request to a route as the server would.
func request(values map[string]string, headers map[string]string, body string) *fasthttp.RequestCtx {
	var req fasthttp.Request
	req.Header.SetMethod(fasthttp.MethodPost)
	for name, value := range headers {
		req.Header.Set(name, value)
	}
	req.SetBodyString(body)
	rc := &fasthttp.RequestCtx{}
	rc.Init2(noConn{}, nil, true)
	req.CopyTo(&rc.Request)
	for name, value := range values {
		rc.SetUserValue(name, value)
	}
	return rc
}

// A noConn is the connection of a request whose bytes have all come.
type noConn struct{ net.Conn }

func (noConn) RemoteAddr() net.Addr             { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)} }
func (noConn) LocalAddr() net.Addr              { return noConn{}.RemoteAddr() }
func (noConn) SetReadDeadline(time.Time) error  { return nil }
func (noConn) SetWriteDeadline(time.Time) error { return nil }

func (b *broker) broadcast(p *post, t *try) {
	ch := b.life.w.store.channel(p.channel)
	headers := map[string]string{
		"X-Broker-Channel-Token": ch.Token, "X-Broker-Producer-ID": "p", "X-Broker-Producer-Token": "t-p",
		"X-Broker-Metadata-Headers": "X-Trace", "X-Trace": "x-" + p.payload,
	}
	if p.key != "" {
		headers["X-Broker-Message-ID"] = p.key
	}
	if p.ordering != "" {
		headers["X-Broker-Ordering-Key"] = p.ordering
	}
	if p.priority > 0 {
		headers["X-Broker-Message-Priority"] = strconv.Itoa(p.priority)
	}
	if p.dueMs > 0 {
		headers["X-Broker-Scheduled-For"] = time.UnixMilli(p.dueMs).UTC().Format(time.RFC3339Nano)
	}
	rc := request(nil, headers, p.payload)
	rc.Request.Header.SetContentType(contentType)
	if b.life.w.plan.greed.producers > 0 { // as a body that comes
		rc.Request.SetBodyStream(strings.NewReader(p.payload), len(p.payload))
	}
	t.slot, t.came = b.life.slot, true
	b.plane.Broadcast(rc, ch.ID)
	if b.life.w.plan.greed.producers > 0 && problemCode(rc) == "overloaded" {
		b.life.w.checkRoom(b, int64(len(p.payload)))
	}
	if !b.life.awake() {
		return // the connection broke
	}
	t.status, t.code = rc.Response.StatusCode(), problemCode(rc)
	if location := string(rc.Response.Header.Peek("Location")); location != "" {
		t.id = location[strings.LastIndexByte(location, '/')+1:]
	}
}

// problemCode is the code of a problem, "" of any other answer.
func problemCode(rc *fasthttp.RequestCtx) string {
	var p struct{ Code string }
	if rc.Response.StatusCode() < 400 || json.Unmarshal(rc.Response.Body(), &p) != nil {
		return ""
	}
	return p.Code
}

// register lets consumers join while messages flow. Half of them get messages of the past.
func (w *world) register() {
	r := draw(w.seed, word("register"))
	for range w.plan.late {
		time.Sleep(r.between(0, w.plan.active/2))
		kind := durable.Push
		if w.plan.pull > 0 && r.hit(300) {
			kind = durable.Pull
		}
		since := none
		if r.hit(500) {
			since = ident.Before(w.store.nowMs() - r.between(0, w.plan.active).Milliseconds())
		}
		w.join(w.channels[r.below(len(w.channels))], kind, since)
	}
}
