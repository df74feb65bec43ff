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

// withEmbeddedRedis is part of the name of a broker whose Redis is its own, so that
// the others on the same store know.
const withEmbeddedRedis = " (embedded Redis)"

// errAnotherRedis says that a broker with another Redis works on the same store: each
// of the two would hold an order, and leases, that the other one knows nothing of.
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

// conflict returns why a broker cannot work beside the other nodes that are alive,
// nil when it can. own is the token of its lease.
func conflict(own [16]byte, embedded bool, nodes []durable.Node) (other *durable.Node, err error) {
	for i := range nodes {
		n := &nodes[i]
		switch {
		case !n.Alive || n.Token == own:
		case embedded:
			return n, fmt.Errorf("%w: broker %s is alive on the same MySQL, and this one has an embedded Redis, so it must be alone: set BROKER_REDIS_URL, or stop the other one first",
				errAnotherRedis, n.Name)
		case strings.Contains(n.Name, withEmbeddedRedis):
			return n, fmt.Errorf("%w: broker %s is alive on the same MySQL and has an embedded Redis, so it must be alone: stop it, or set its BROKER_REDIS_URL to that of this one",
				errAnotherRedis, n.Name)
		}
	}
	return nil, nil
}

// peerLook is how often a starting broker looks at those that are in its way.
const peerLook = 200 * time.Millisecond

// awaitAlone returns nil once no broker is in the way of this one, which has no
// lease yet: those that run need not hear of one that cannot start. The lease of a
// broker that was killed goes on for a while: only one that renews it is alive.
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
			b.log.Info("another broker is in the way, if it is alive", "broker", other.Name)
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

// stillAlone is the same once this broker has its lease: of two that started at the
// same time at least one sees the other.
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

// checkPeers ends this broker when one that is in the way came although both had
// made sure: it was paused, its lease ran out, and it goes on now. Of two one must
// go: that with the embedded Redis, and of two such the one with the lower token.
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
	default: // it is ending
	}
}
