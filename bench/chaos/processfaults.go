//go:build unix

package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"syscall"
	"time"

	"github.com/penstock-broker/penstock/internal/tool/failpoint"
)

// orderPatience is how long a broker may take to reach its failpoint. After that it is killed
// wherever it is.
const orderPatience = 5 * time.Second

// processKinds hit brokers, producers and consumers.
func processKinds() []kind {
	out := []kind{
		{3, brokerKilled},
		{2, brokerRestarted},
		{2, brokerPaused},
		{1, func(r *rig, rng *rand.Rand) blow { return restarted("producer killed", "", r.producer, rng, false) }},
		{1, func(r *rig, rng *rand.Rand) blow {
			return restarted("push endpoints killed", "F33", r.sinks, rng, true)
		}},
		{1, func(r *rig, rng *rand.Rand) blow {
			return restarted("pull workers killed", "F41", r.puller, rng, false)
		}},
	}
	if atPoints {
		out = append(out, kind{5, brokerKilledAt})
	}
	return out
}

// onBroker is a blow to the process of a random broker, which is up again at the end.
func onBroker(r *rig, rng *rand.Rand, f Fault, hit func(ctx context.Context, n *node) error) blow {
	n := r.nodes[rng.IntN(len(r.nodes))]
	f.Broker, f.Channel = n.no, unspecified
	away := between(rng, 100*time.Millisecond, 1500*time.Millisecond)
	return blow{f, func(ctx context.Context) error {
		n.mu.Lock()
		defer n.mu.Unlock()
		if err := hit(ctx, n); err != nil {
			return err
		}
		if n.running() {
			return nil
		}
		pause(ctx, away)
		return n.up(context.WithoutCancel(ctx))
	}}
}

func brokerKilled(r *rig, rng *rand.Rand) blow {
	return onBroker(r, rng, Fault{Kind: "broker killed", Catalogue: "F11", Repeats: true}, func(_ context.Context,
		n *node) error {
		n.kill()
		return nil
	})
}

func brokerKilledAt(r *rig, rng *rand.Rand) blow {
	point := failpoint.Points[rng.IntN(len(failpoint.Points))]
	count := 1 + rng.IntN(20)
	k := rng.IntN(len(r.plan.Consumers))
	f := Fault{Kind: "broker killed at a failpoint", Detail: point, Catalogue: "F1-F10", Repeats: true}
	return onBroker(r, rng, f, func(ctx context.Context, n *node) error {
		switch point { // these points are rarely reached without help
		case failpoint.AfterReclaim, failpoint.AfterRedrive, failpoint.AfterConfig, failpoint.AfterPage, failpoint.Draining:
			count = 1
		}
		if err := n.arm(point, count); err != nil {
			return err
		}
		switch point {
		case failpoint.AfterRedrive:
			r.redrive(ctx, "http://"+n.addr, k)
		case failpoint.AfterConfig:
			r.touchConsumer(ctx, "http://"+n.addr, k)
		case failpoint.Draining:
			n.terminate()
		}
		n.wait(orderPatience)
		n.kill()
		return nil
	})
}

func brokerRestarted(r *rig, rng *rand.Rand) blow {
	return onBroker(r, rng, Fault{Kind: "broker restarted politely", Catalogue: "F12"}, func(_ context.Context,
		n *node) error {
		if !n.stop(stopWithin) {
			r.note("unclean stop", "%s did not end with code 0 within %v of SIGTERM", n.name, stopWithin)
		}
		return nil
	})
}

func brokerPaused(r *rig, rng *rand.Rand) blow {
	d := between(rng, 2*time.Second, 6*time.Second)
	if rng.IntN(4) == 0 { // longer than a lease
		d = between(rng, 10*time.Second, 15*time.Second)
	}
	f := Fault{Kind: "broker paused", Detail: d.String(), Catalogue: "F13", Repeats: true, Delays: true}
	return onBroker(r, rng, f, func(ctx context.Context, n *node) error {
		n.signal(syscall.SIGSTOP)
		pause(ctx, d)
		n.signal(syscall.SIGCONT)
		return nil
	})
}

// restarted kills another process of the rig and starts it again.
func restarted(name, catalogue string, c *guarded, rng *rand.Rand, repeats bool) blow {
	away := between(rng, 100*time.Millisecond, 3*time.Second)
	f := Fault{Kind: name, Detail: fmt.Sprintf("for %v", away), Catalogue: catalogue, Repeats: repeats,
		Broker: unspecified, Channel: unspecified}
	return blow{f, func(ctx context.Context) error {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.kill()
		pause(ctx, away)
		return c.start()
	}}
}
