package simulation

import (
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/internal/tool/share"
)

// Greedy neighbours are producers beside the one whose messages count. Each sends many bodies at
// once, a large part of each quickly and the rest byte by byte, until its client goes away: nothing of
// them is stored. What they hold of the memory of bodies is bounded by their shares (I23).

// bodiesMost is the size of the bound on bodies of a broker.
const bodiesMost = 1 << 20

// smallShare is what a producer has room for, whatever three others hold: each of these leaves at
// least as much as it has.
const smallShare = bodiesMost / 20

// A greed is what greedy neighbours a plan has.
type greed struct {
	producers int // 0: none
	attacks   int
	bodies    int // of each producer at each broker at once
}

// newGreed draws the greedy neighbours. It is a draw of its own: the rest of the plan stays.
func newGreed(seed uint64) (g greed) {
	c := draw(seed, word("greed"))
	if c.hit(80) {
		g = greed{producers: 1 + c.below(3), attacks: 1 + c.below(2), bodies: 6 + c.below(11)}
	}
	return g
}

func greedyName(n int) string { return fmt.Sprintf("greedy%d", n) }

// beGreedy is the greedy neighbours. Each attack is on all brokers.
func (w *world) beGreedy() {
	r := draw(w.seed, word("attack"))
	for n := range w.plan.greed.attacks {
		time.Sleep(r.between(0, w.plan.active/2))
		until := time.Now().Add(r.between(time.Second, 3*time.Second))
		w.note("greedy neighbours", fmt.Sprintf("%+v for %v", w.plan.greed, time.Until(until)))
		var attack sync.WaitGroup
		attacked := map[*broker]bool{}
		for slot := range w.plan.brokers {
			if b := w.broker(slot); b != nil && !attacked[b] {
				attacked[b] = true
				attack.Go(func() { w.crowd(b, until, draw(w.seed, word("crowd"), uint64(n), uint64(slot))) })
			}
		}
		attack.Wait()
	}
}

// crowd is one attack on one broker, and the check that it is over when its clients are gone.
func (w *world) crowd(b *broker, until time.Time, r chance) {
	var all sync.WaitGroup
	for n := range w.plan.greed.producers {
		if w.flaw == sharesAreOff {
			free := b.bodies.Most() - b.bodies.Taken()
			b.bodies.Add(greedyKey(n), free)
			defer b.bodies.Give(greedyKey(n), free)
		}
		for range w.plan.greed.bodies {
			way := draw(r.next())
			all.Go(func() {
				for time.Now().Before(until) && !b.life.dead() {
					w.drip(b, n, until, &way)
					time.Sleep(way.between(20*time.Millisecond, 400*time.Millisecond))
				}
			})
		}
	}
	all.Go(func() {
		for ; time.Now().Before(until) && !b.life.dead(); time.Sleep(r.between(time.Millisecond, 100*time.Millisecond)) {
			w.checkRoom(b, 1+int64(r.below(16<<10)))
		}
	})
	all.Wait()
	if w.flaw == roomIsForgotten {
		b.bodies.Add(greedyKey(0), 1)
	}
	for n := range w.plan.greed.producers {
		if held := b.bodies.Held(greedyKey(n)); held != 0 && w.flaw != sharesAreOff {
			w.checker.report(none, "I23: broker %d holds %d bytes for bodies whose clients are gone", b.life.no, held)
		}
	}
}

// greedyKey is the key of a greedy producer. The number of the first producer is 1.
func greedyKey(n int) share.Key { return share.Producer(uint32(2 + n)) }

// checkRoom checks that the producer has room for n bytes more of a body, as long as it holds less than
// what it may always have.
func (w *world) checkRoom(b *broker, n int64) {
	k := share.Producer(1)
	held := b.bodies.Held(k)
	if held+n > smallShare {
		return
	}
	if b.bodies.Take(k, n) {
		b.bodies.Give(k, n)
		return
	}
	w.checker.report(none, "I23: broker %d has no room for %d bytes of a producer that holds %d; all hold %d of %d",
		b.life.no, n, held, b.bodies.Taken(), b.bodies.Most())
}

// drip posts one body that never comes to its end.
func (w *world) drip(b *broker, producer int, until time.Time, r *chance) {
	ch := w.store.channel(w.channels[r.below(len(w.channels))])
	id := greedyName(producer)
	rc := &fasthttp.RequestCtx{}
	body := &dripping{until: until, fast: 8<<10 + r.below(160<<10), pause: r.between(50*time.Millisecond,
		400*time.Millisecond), ended: make(chan struct{})}
	rc.Init2(body, nil, true)
	rc.Request.Header.SetMethod(fasthttp.MethodPost)
	for name, value := range map[string]string{"X-Broker-Channel-Token": ch.Token, "X-Broker-Producer-ID": id,
		"X-Broker-Producer-Token": "t-" + id} {
		rc.Request.Header.Set(name, value)
	}
	rc.Request.Header.SetContentType(contentType)
	rc.Request.SetBodyStream(body, body.fast+100<<10)
	b.plane.Broadcast(rc, ch.ID)
	if status := rc.Response.StatusCode(); status < 400 && b.life.awake() {
		w.checker.report(none, "I3: a part of a body of %s was answered %d", id, status)
	}
}

// A dripping is a connection with the body of one request.
type dripping struct {
	net.Conn
	until time.Time // the client goes away
	fast  int       // bytes that come at once
	pause time.Duration
	sent  int

	once  sync.Once
	ended chan struct{} // the broker has given the body up
}

// Read is the next part of the body.
func (d *dripping) Read(p []byte) (int, error) {
	n := min(len(p), d.fast-d.sent)
	if n <= 0 {
		n = 1
		t := time.NewTimer(min(d.pause, time.Until(d.until)))
		defer t.Stop()
		select {
		case <-d.ended:
			return 0, os.ErrDeadlineExceeded
		case <-t.C:
		}
		if !time.Now().Before(d.until) {
			return 0, io.ErrUnexpectedEOF
		}
	}
	d.sent += n
	clear(p[:n])
	return n, nil
}

// SetReadDeadline ends a read under way if the time is past. No later one is reached in a run.
func (d *dripping) SetReadDeadline(t time.Time) error {
	if t.Before(time.Now()) {
		d.once.Do(func() { close(d.ended) })
	}
	return nil
}

func (*dripping) RemoteAddr() net.Addr { return &net.TCPAddr{} }
func (*dripping) LocalAddr() net.Addr  { return &net.TCPAddr{} }
