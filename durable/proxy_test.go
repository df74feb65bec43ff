package durable_test

import (
	"bytes"
	"encoding/binary"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A proxy stands between a store and its MySQL server. It reads the packets of the
// protocol, and cuts connections around statements, or stalls at one. A TCP proxy
// that knows no statements is in internal/test/proxy.
type proxy struct {
	listener net.Listener
	server   string
	watched  [][]byte     // beginnings of statements
	chance   atomic.Int64 // percent of watched statements that meet a fault
	faults   [4]atomic.Int64
	queries  atomic.Int64 // packets with statements, so far
	wg       sync.WaitGroup

	mu  sync.Mutex
	at  []byte // the statement that stalls next; nil: none
	hit bool   // it came
}

// What happens to a watched statement.
const (
	cutBefore = iota // it never reaches the server
	cutAfter         // it reaches the server, nobody waits for the answer
	cutAnswer        // it is answered, the answer is lost
	cutLate          // the connection is cut at once, the server gets it a moment later
)

func startProxy(t *testing.T, server string, watched ...string) *proxy {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &proxy{listener: l, server: server}
	for _, w := range watched {
		p.watched = append(p.watched, []byte(w))
	}
	p.wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			p.wg.Go(func() { p.serve(c) })
		}
	})
	return p
}

// arm makes the next statement that begins with text stall: the proxy swallows it
// and everything after it, and stays silent until the client leaves, as a server
// that stands still just then. Connections made later work again.
func (p *proxy) arm(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.at, p.hit = []byte(text), false
}

// wasHit reports whether the statement came.
func (p *proxy) wasHit() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.hit
}

func (p *proxy) stalls(packet []byte) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.at == nil || len(packet) < 5 || !bytes.HasPrefix(packet[5:], p.at) {
		return false
	}
	p.at, p.hit = nil, true
	return true
}

// stop waits until every statement on its way has arrived.
func (p *proxy) stop(t *testing.T) {
	require.NoError(t, p.listener.Close())
	p.wg.Wait()
}

func (p *proxy) serve(client net.Conn) {
	defer client.Close()
	server, err := net.Dial("tcp", p.server)
	if err != nil {
		return
	}
	defer server.Close()
	var lose atomic.Bool // the next answer
	answered := make(chan struct{})
	p.wg.Go(func() { // answers
		defer close(answered)
		defer client.Close()
		buf := make([]byte, 64<<10)
		for {
			n, err := server.Read(buf)
			if n == 0 || err != nil || lose.Load() {
				return
			}
			if _, err := client.Write(buf[:n]); err != nil {
				return
			}
		}
	})
	for {
		packet, err := readPacket(client)
		if err != nil {
			return
		}
		if len(packet) > 4 && packet[4] == comQuery {
			p.queries.Add(1)
		}
		if p.stalls(packet) {
			_, _ = io.Copy(io.Discard, client)
			return
		}
		if !p.isWatched(packet) || rand.Int64N(100) >= p.chance.Load() {
			if _, err := server.Write(packet); err != nil {
				return
			}
			continue
		}
		fault := rand.IntN(len(p.faults))
		p.faults[fault].Add(1)
		switch fault {
		case cutBefore:
		case cutAfter:
			_, _ = server.Write(packet)
		case cutAnswer:
			lose.Store(true)
			_, _ = server.Write(packet)
			<-answered
		case cutLate:
			lose.Store(true)
			_ = client.Close()
			time.Sleep(time.Duration(rand.IntN(40)) * time.Millisecond)
			_, _ = server.Write(packet)
			<-answered
		}
		return
	}
}

// comQuery is the command of a packet with statements.
const comQuery = 3

func (p *proxy) isWatched(packet []byte) bool {
	if len(packet) < 5 || packet[4] != comQuery {
		return false
	}
	for _, w := range p.watched {
		if bytes.HasPrefix(packet[5:], w) {
			return true
		}
	}
	return false
}

// readPacket returns a packet of the MySQL protocol with its header.
func readPacket(r io.Reader) ([]byte, error) {
	var header [4]byte
	if _, err := io.ReadFull(r, header[:]); err != nil {
		return nil, err
	}
	size := binary.LittleEndian.Uint32([]byte{header[0], header[1], header[2], 0})
	packet := make([]byte, 4+size)
	copy(packet, header[:])
	_, err := io.ReadFull(r, packet[4:])
	return packet, err
}
