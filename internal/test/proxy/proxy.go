// Package proxy forwards TCP connections and breaks them in the ways that networks
// do. The chaos campaign and the tests share it.
package proxy

import (
	"errors"
	"net"
	"sync"
	"time"
)

// A Proxy stands in front of one server at a time.
type Proxy struct {
	ln net.Listener

	mu      sync.Mutex
	target  string
	weather Weather
	changed chan struct{} // closed when the weather changes
	links   map[*link]struct{}
	closed  bool
	wg      sync.WaitGroup
}

// A Weather is what a Proxy does to its connections. The zero value forwards.
type Weather struct {
	Refuse      bool          // connections are reset as soon as they are made
	StallUp     bool          // what clients send stays in the proxy
	StallDown   bool          // what the server answers stays in the proxy
	Delay       time.Duration // of each chunk, either way
	LoseAnswers bool          // the next answer is thrown away and the connection reset
}

// A link is one forwarded connection.
type link struct {
	client, server *net.TCPConn
	once           sync.Once
	ended          chan struct{}
}

// Start listens on a port of its own in front of target, host:port.
func Start(target string) (*Proxy, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &Proxy{ln: ln, target: target, changed: make(chan struct{}), links: map[*link]struct{}{}}
	p.wg.Go(p.accept)
	return p, nil
}

// Addr is host:port of the proxy.
func (p *Proxy) Addr() string { return p.ln.Addr().String() }

// Set changes the weather for connections old and new.
func (p *Proxy) Set(w Weather) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.weather = w
	close(p.changed)
	p.changed = make(chan struct{})
}

func (p *Proxy) now() (Weather, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.weather, p.changed
}

// Connections counts those that are open.
func (p *Proxy) Connections() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.links)
}

// Cut resets every connection.
func (p *Proxy) Cut() {
	p.mu.Lock()
	links := make([]*link, 0, len(p.links))
	for l := range p.links {
		links = append(links, l)
	}
	p.mu.Unlock()
	for _, l := range links {
		l.reset()
	}
}

// Turn leads later connections to another server and resets those that are open.
func (p *Proxy) Turn(target string) {
	p.mu.Lock()
	p.target = target
	p.mu.Unlock()
	p.Cut()
}

// Close ends everything.
func (p *Proxy) Close() error {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	err := p.ln.Close()
	p.Cut()
	p.wg.Wait()
	return err
}

func (p *Proxy) accept() {
	for {
		c, err := p.ln.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // out of descriptors: later
			time.Sleep(10 * time.Millisecond)
			continue
		}
		p.wg.Go(func() { p.serve(c.(*net.TCPConn)) })
	}
}

func (p *Proxy) serve(client *net.TCPConn) {
	l := &link{client: client, ended: make(chan struct{})}
	if w, _ := p.now(); w.Refuse {
		l.reset()
		return
	}
	p.mu.Lock()
	target := p.target
	p.mu.Unlock()
	server, err := net.DialTimeout("tcp", target, 5*time.Second)
	if err != nil {
		l.reset()
		return
	}
	l.server = server.(*net.TCPConn)
	p.mu.Lock()
	over := p.closed || p.target != target // turned during the dial
	p.links[l] = struct{}{}
	p.mu.Unlock()
	if over {
		l.reset()
	}
	var both sync.WaitGroup
	both.Go(func() { p.forward(l, l.client, l.server, false) })
	both.Go(func() { p.forward(l, l.server, l.client, true) })
	both.Wait()
	l.reset()
	p.mu.Lock()
	delete(p.links, l)
	p.mu.Unlock()
}

// forward copies one direction until it ends or the weather does not let it.
func (p *Proxy) forward(l *link, from, to *net.TCPConn, down bool) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			if !p.pass(l, down) {
				return
			}
			if _, err := to.Write(buf[:n]); err != nil {
				l.reset()
				return
			}
		}
		if err != nil {
			_ = to.CloseWrite() // the other direction may still have something to say
			return
		}
	}
}

// pass waits until a chunk may go on; false means that its connection is over.
func (p *Proxy) pass(l *link, down bool) bool {
	for {
		w, changed := p.now()
		switch {
		case w.Refuse, down && w.LoseAnswers:
			l.reset()
			return false
		case !down && !w.StallUp, down && !w.StallDown:
			if w.Delay > 0 {
				time.Sleep(w.Delay)
			}
			return true
		}
		select {
		case <-changed:
		case <-l.ended:
			return false
		}
	}
}

// reset ends the connection without a polite word: both ends see RST.
func (l *link) reset() {
	l.once.Do(func() {
		close(l.ended)
		for _, c := range []*net.TCPConn{l.client, l.server} {
			if c != nil {
				_ = c.SetLinger(0) // fails only on what is closed already
				_ = c.Close()
			}
		}
	})
}
