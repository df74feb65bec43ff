//go:build unix

package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"
)

// Greedy neighbours are producers, consumers and clients beside those of the plan. They hold as much
// as they get of everything that the users of a broker share. No neighbour does anything that is
// forbidden, so the ordinary clients must keep their service.
//
// The process of the neighbours has a bounded pool of goroutines. Each goroutine mounts one attack
// after the other and holds what it has got for some seconds. The journal has a line for each:
//
//	G kind held broker began ended
type neighbours struct {
	plan *plan
	log  *journal
	from []*net.TCPAddr // local addresses, by neighbour; nil: any
}

const (
	neighboursRole = "chaos-neighbours"
	// greedy is the number of neighbours, each a producer and a channel.
	greedy = 4
	// neighboursAtMost bounds the pool. A goroutine holds up to heldAtMost connections.
	neighboursAtMost = 256
	heldAtMost       = 32
	// dripEvery is the time between two bytes of a slow client.
	dripEvery = time.Second
)

// The consumers of a neighbour. No message is for waitingID, and idleID never claims one.
const (
	lateID    = "late"    // responds after long
	polledID  = "polled"  // accepts, and its results hang
	promptID  = "prompt"  // responds at once, to a reply URL that hangs
	idleID    = "idle"    // pull, no worker
	waitingID = "waiting" // pull, its workers wait
)

func neighbourID(i int) string { return fmt.Sprintf("neighbour-%d", i) }

// neighbourForms are the fields of a neighbour's consumers, which push to a server at inside.
func neighbourForms(inside string) map[string]url.Values {
	push := func(path string, more ...string) url.Values {
		form := url.Values{"type": {"push"}, "callbackUrl": {"http://" + inside + path}, "responses": {"callback"}}
		for pair := range slices.Chunk(more, 2) {
			form.Set(pair[0], pair[1])
		}
		return form
	}
	return map[string]url.Values{
		lateID:    push(latePath),
		polledID:  push(polledPath, "async", "true"),
		promptID:  push(promptPath),
		idleID:    {"type": {"pull"}},
		waitingID: {"type": {"pull"}, "filter": {"priority == 1023"}},
	}
}

// newNeighbours gives each neighbour a loopback address of its own where the system has them.
func newNeighbours(p *plan, log *journal) *neighbours {
	n := &neighbours{plan: p, log: log, from: make([]*net.TCPAddr, greedy)}
	for i := range n.from {
		addr := &net.TCPAddr{IP: net.IPv4(127, 0, 0, byte(2+i))}
		if l, err := net.ListenTCP("tcp4", addr); err == nil {
			_ = l.Close() // a listener, closed once
			n.from[i] = addr
		}
	}
	return n
}

// run attacks until ctx ends.
func (n *neighbours) run(ctx context.Context) error {
	ln, err := net.Listen("tcp", n.plan.Inside)
	if err != nil {
		return err
	}
	server := &http.Server{Handler: insideOf(ctx), ReadHeaderTimeout: wirePatience}
	var wg sync.WaitGroup
	wg.Go(func() {
		<-ctx.Done()
		_ = server.Close() // what hangs is cut
	})
	for i := range n.plan.Neighbours {
		rng := rand.New(rand.NewPCG(n.plan.Seed, uint64(i)))
		wg.Go(func() {
			for step := i; ctx.Err() == nil; step++ {
				n.attack(ctx, attacks[step%len(attacks)], rng)
			}
		})
	}
	err = server.Serve(ln)
	wg.Wait()
	if errors.Is(err, http.ErrServerClosed) {
		err = nil
	}
	return err
}

// attack mounts one attack on one broker for some seconds.
func (n *neighbours) attack(ctx context.Context, a attack, rng *rand.Rand) {
	ctx, cancel := context.WithTimeout(ctx, between(rng, 4*time.Second, 15*time.Second))
	defer cancel()
	g := &neighbour{neighbours: n, rng: rng, broker: rng.IntN(len(n.plan.Doors)), who: rng.IntN(greedy)}
	g.http = &http.Client{Transport: &http.Transport{DialContext: g.dialContext, DisableKeepAlives: true,
		MaxConnsPerHost: heldAtMost}, CheckRedirect: noRedirect}
	start := time.Now()
	held := a.mount(g, ctx)
	n.log.Add("G", a.kind, held, g.broker, start, time.Now())
	if held == 0 { // the broker is away
		pause(ctx, 200*time.Millisecond)
	}
}

// A neighbour is a client of one broker that attacks.
type neighbour struct {
	*neighbours
	rng    *rand.Rand
	broker int
	who    int
	http   *http.Client
}

func (n *neighbour) dialContext(ctx context.Context, _, _ string) (net.Conn, error) {
	d := net.Dialer{Timeout: 2 * time.Second}
	if from := n.from[n.who]; from != nil {
		d.LocalAddr = from
	}
	return d.DialContext(ctx, "tcp", n.plan.Doors[n.broker])
}

func (n *neighbour) path(rest string) string { return "/channel/" + neighbourID(n.who) + rest }

// fields are the headers of its producer.
func (n *neighbour) fields(more ...string) []string {
	return append([]string{"X-Broker-Channel-Token", n.plan.Token, "X-Broker-Producer-ID", neighbourID(n.who),
		"X-Broker-Producer-Token", n.plan.Token}, more...)
}

// registerNeighbours creates the producers, channels and consumers of the neighbours.
func (r *rig) registerNeighbours(ctx context.Context) error {
	base := "http://" + r.nodes[0].addr
	for i := range greedy {
		id := neighbourID(i)
		err := put(ctx, base+"/producer/"+id, url.Values{"token": {r.plan.Token}, "replyUrl": {"http://" + r.plan.Inside +
			replyPath}, "statusEvents": {"all"}})
		if err == nil {
			err = put(ctx, base+"/channel/"+id, url.Values{"token": {r.plan.Token}})
		}
		if err != nil {
			return err
		}
		for k, form := range neighbourForms(r.plan.Inside) {
			form.Set("token", r.plan.Token)
			if err := put(ctx, base+"/channel/"+id+"/consumer/"+k, form); err != nil {
				return err
			}
		}
	}
	return nil
}

// forgetWithin bounds the deletion of the neighbours, which begins right after the last fault.
const forgetWithin = 3 * time.Minute

// endAttack ends the neighbours and deletes all that belongs to them, so that what is left of them
// holds nobody back and the campaign can drain.
func (r *rig) endAttack(ctx context.Context, say func(format string, args ...any)) {
	if r.neighbours == nil {
		return
	}
	r.neighbours.finish(2 * wirePatience)
	r.attack.End = time.Now()
	say("the neighbours have ended")
	ctx, cancel := context.WithTimeout(ctx, forgetWithin)
	defer cancel()
	var wg sync.WaitGroup
	for i := range greedy {
		id := neighbourID(i)
		wg.Go(func() {
			for k := range neighbourForms("") {
				r.forget(ctx, "/channel/"+id+"/consumer/"+k)
			}
			r.forget(ctx, "/channel/"+id)
			r.forget(ctx, "/producer/"+id)
		})
	}
	wg.Wait()
}

// forget deletes a resource, at one broker after the other.
func (r *rig) forget(ctx context.Context, path string) {
	status, err := 0, error(nil)
	for i := 0; ctx.Err() == nil; i++ {
		status, err = send(ctx, http.MethodDelete, "http://"+r.nodes[i%len(r.nodes)].addr+path, nil)
		if err == nil && (status == http.StatusNoContent || status == http.StatusNotFound) {
			return
		}
		pause(ctx, 200*time.Millisecond)
	}
	r.note("is not deleted", "%s: status %d: %v", path, status, err)
}

// watchMemory keeps the most memory that a broker had, by its metrics.
func (r *rig) watchMemory(ctx context.Context) {
	for ctx.Err() == nil {
		for _, n := range r.nodes {
			bytes := 0
			if n.metrics(ctx, map[string]*int{"process_resident_memory_bytes": &bytes}) == nil {
				r.mu.Lock()
				r.attack.Memory = max(r.attack.Memory, bytes>>20)
				r.mu.Unlock()
			}
		}
		pause(ctx, time.Second)
	}
}
