package egress

import (
	"crypto/tls"
	"errors"
	"net"
	"sync"
	"sync/atomic"
)

// errFlood ends an HTTP/2 connection over which the consumer sends more than answers need: PING
// frames, frames of unknown types, data of streams that have ended. net/http reads them all, as fast
// as they come, and one such consumer would take a processor of the broker.
var errFlood = errors.New("egress: the consumer sends more over its HTTP/2 connection than its answers need")

// restGrant is what a connection may carry beside the grants of its exchanges, bytes: handshakes,
// settings, pings, and the overhead of answers in small pieces.
const restGrant = 1 << 20

// answerGrant is what an exchange allows its connection to carry: the head, what is read of the
// body, and what comes before the stream ends.
func answerGrant(keep *Keep) int64 {
	body := maxAnswerBytes
	if keep != nil {
		body = max(body, keep.Bytes)
	}
	return int64(maxHeadBytes + body + unreadH2)
}

// A grantedConn is a connection of HTTP/2 that reads as much as was granted. A grant that its exchange
// has not used remains while the connection has other exchanges, so that it takes no account of which
// stream a byte belongs to.
type grantedConn struct {
	net.Conn
	left atomic.Int64

	mu        sync.Mutex
	exchanges int
}

func newGrantedConn(c net.Conn) *grantedConn {
	g := &grantedConn{Conn: c}
	g.left.Store(restGrant)
	return g
}

func (g *grantedConn) Read(b []byte) (int, error) {
	if g.left.Load() <= 0 {
		return 0, errFlood
	}
	n, err := g.Conn.Read(b)
	g.left.Add(-int64(n))
	return n, err
}

// change counts an exchange that begins with a grant, or ends. Without exchanges nothing remains of
// the grants.
func (g *grantedConn) change(by int, grant int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.exchanges += by
	if left := g.left.Add(grant); g.exchanges == 0 && left > restGrant {
		g.left.Add(restGrant - left)
	}
}

// grants are those of one exchange, which net/http may begin on several connections.
type grants struct {
	size int64

	mu    sync.Mutex
	conns []*grantedConn
	ended bool
}

// begin grants the exchange on a connection of net/http.
func (g *grants) begin(c net.Conn) {
	on := grantedOf(c)
	g.mu.Lock()
	defer g.mu.Unlock()
	if on != nil && !g.ended {
		on.change(1, g.size)
		g.conns = append(g.conns, on)
	}
}

func (g *grants) end() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ended = true
	for _, c := range g.conns {
		c.change(-1, 0)
	}
}

// grantedOf returns the granted connection under those of TLS and of prior knowledge.
func grantedOf(c net.Conn) *grantedConn {
	for {
		switch on := c.(type) {
		case *grantedConn:
			return on
		case *priorConn:
			c = on.Conn
		case *tls.Conn:
			c = on.NetConn()
		default:
			return nil
		}
	}
}
