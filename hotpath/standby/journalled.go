package standby

import (
	"crypto/sha256"
	"sync"

	"github.com/penstock-broker/penstock/internal/feature/journal"
)

// mostNamed bounds the identities of messages that a broker knows to be in its journals. It is asked
// about them to explain a message, and knows nothing of those beyond.
const mostNamed = 1 << 16

// A named is a channel with the digest of the Key of a message.
type named struct {
	channel uint32
	digest  [16]byte
}

func nameOf(channel uint32, key string) named {
	sum := sha256.Sum256([]byte(key))
	return named{channel, [16]byte(sum[:16])}
}

// names are the identities of messages in the journals of this broker. The zero value is empty.
type names struct {
	mu  sync.Mutex
	all map[named]struct{}
}

func (n *names) add(channel uint32, key string) {
	if key == "" {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.all == nil {
		n.all = map[named]struct{}{}
	}
	if len(n.all) < mostNamed {
		n.all[nameOf(channel, key)] = struct{}{}
	}
}

func (n *names) remove(channel uint32, key string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.all, nameOf(channel, key))
}

func (n *names) has(channel uint32, key string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	_, ok := n.all[nameOf(channel, key)]
	return ok
}

// Journalled reports whether a message of a channel is in a journal of this broker, and not yet in the
// store: the one with one of these Keys, or with that text as its receipt.
func (s *Standby) Journalled(channel uint32, keys []string, receipt string) bool {
	if s == nil {
		return false
	}
	if r, ok := journal.ParseReceipt(receipt, s.o.Sign); ok && s.has(r) {
		return true
	}
	for _, key := range keys {
		if s.names.has(channel, key) {
			return true
		}
	}
	return false
}
