package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/hotpath/cluster"
)

// withEmbeddedRedis is part of the name of a broker with an embedded Redis. Other brokers on the
// same store recognise it by that.
const withEmbeddedRedis = " (embedded Redis)"

// errAnotherRedis means that a broker with another Redis works on the same store. Each of the two
// would have an order and leases that are unknown to the other.
var errAnotherRedis = errors.New("brokers on one MySQL need one Redis")

// nodeName is how a broker calls itself in the list of nodes.
func nodeName(host string, pid int, cfg config) string {
	name := fmt.Sprintf("%s:%d", host, pid)
	if cfg.RedisURL == "" {
		name += withEmbeddedRedis
	}
	if !cfg.Reaper {
		name += cluster.NoFailSafe // which ends a name
	}
	return name
}

// conflict returns the reason why a broker cannot work in parallel with the other nodes that are
// alive, nil if it can. own is the token of its lease.
func conflict(own [16]byte, embedded bool, nodes []durable.Node) (other *durable.Node, err error) {
	for i := range nodes {
		n := &nodes[i]
		switch {
		case !n.Alive || n.Token == own:
		case embedded:
			return n, fmt.Errorf("%w: broker %s is alive on the same MySQL, and this one has an embedded Redis, so it must "+
				"be alone: set BROKER_REDIS_URL, or stop the other one first",
				errAnotherRedis, n.Name)
		case strings.Contains(n.Name, withEmbeddedRedis):
			return n, fmt.Errorf("%w: broker %s is alive on the same MySQL and has an embedded Redis, so it must be alone: "+
				"stop it, or set its BROKER_REDIS_URL to that of this one",
				errAnotherRedis, n.Name)
		}
	}
	return nil, nil
}

// peerLook is the interval at which a starting broker reads the nodes that conflict with it.
const peerLook = 200 * time.Millisecond

// awaitAlone returns nil once no node conflicts with this broker. It runs before the broker has a
// lease, so running brokers do not notice a broker that cannot start. The lease of a killed broker
// lasts for a while; only a broker that renews its lease is alive.
func (b *broker) awaitAlone(ctx context.Context) error {
	seen := map[[16]byte]time.Time{} // ends of leases
	for {
		nodes, err := b.store.Nodes(ctx)
		if err != nil {
			return fmt.Errorf("%w: %w", errStore, err)
		}
		other, err := conflict([16]byte{}, b.embedded != nil, nodes)
		if err == nil {
			return nil
		}
		end, known := seen[other.Token]
		switch {
		case !known:
			b.log.Info("another broker conflicts with this one if it is alive; waiting for its lease", "broker", other.Name)
			seen[other.Token] = other.Expires
		case other.Expires.After(end):
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(peerLook):
		}
	}
}

// stillAlone repeats that check once this broker has its lease. If two brokers start at the same
// time, at least one sees the other.
func (b *broker) stillAlone(ctx context.Context) error {
	lease, err := b.node.Lease()
	if err != nil {
		return err
	}
	nodes, err := b.store.Nodes(ctx)
	if err != nil {
		return fmt.Errorf("%w: %w", errStore, err)
	}
	_, err = conflict(lease.Token, b.embedded != nil, nodes)
	return err
}

// checkPeers ends this broker if a conflicting one has appeared although both had checked. That
// happens after a pause: the lease of a paused broker expires, and the broker continues later. Of
// two conflicting brokers the one with the embedded Redis ends; of two with an embedded Redis, the
// one with the lower token.
func (b *broker) checkPeers() {
	if b.embedded == nil {
		return
	}
	lease, err := b.node.Lease()
	if err != nil {
		return
	}
	other, err := conflict(lease.Token, true, b.node.Peers())
	if err == nil || strings.Contains(other.Name, withEmbeddedRedis) && bytes.Compare(lease.Token[:], other.Token[:]) > 0 {
		return
	}
	select {
	case b.failed <- err:
	default: // the broker is already stopping
	}
}
