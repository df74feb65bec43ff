//go:build unix

package chaos

import (
	"errors"
	"net"
	"sync"
	"time"
)

// A proxy is a link of the rig: it forwards TCP connections, and breaks them in
// the ways that networks do. toxiproxy would do as well, but as a library it
// brings eight modules into the broker's binary that nothing else there needs.
type proxy struct {
	ln     net.Listener
	target string

	mu      sync.Mutex
	weather weather
	changed chan struct{} // closed when the weather changes
	links   map[*link]struct{}
	closed  bool
	wg      sync.WaitGroup
}

// A weather is what a proxy does to its connections. The zero value forwards.
type weather struct {
	refuse      bool          // connections are reset as soon as they are made
	stallUp     bool          // what clients send stays in the proxy
	stallDown   bool          // what the server answers stays in the proxy
	delay       time.Duration // of each chunk, either way
	loseAnswers bool          // the next answer is thrown away and the connection reset
}

// A link is one forwarded connection.
type link struct {
	client, server *net.TCPConn
	once           sync.Once
	ended          chan struct{}
}

// startProxy listens on a port of its own in front of target, host:port.
func startProxy(target string) (*proxy, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &proxy{ln: ln, target: target, changed: make(chan struct{}), links: map[*link]struct{}{}}
	p.wg.Go(p.accept)
	return p, nil
}

func (p *proxy) addr() string { return p.ln.Addr().String() }

// set changes the weather for connections old and new.
func (p *proxy) set(w weather) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.weather = w
	close(p.changed)
	p.changed = make(chan struct{})
}

func (p *proxy) now() (weather, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.weather, p.changed
}

// connections counts those that are open.
func (p *proxy) connections() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.links)
}

// cut resets every connection.
func (p *proxy) cut() {
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

// Close ends everything.
func (p *proxy) Close() error {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	err := p.ln.Close()
	p.cut()
	p.wg.Wait()
	return err
}

func (p *proxy) accept() {
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

func (p *proxy) serve(client *net.TCPConn) {
	l := &link{client: client, ended: make(chan struct{})}
	if w, _ := p.now(); w.refuse {
		l.reset()
		return
	}
	server, err := net.DialTimeout("tcp", p.target, 5*time.Second)
	if err != nil {
		l.reset()
		return
	}
	l.server = server.(*net.TCPConn)
	p.mu.Lock()
	closed := p.closed
	p.links[l] = struct{}{}
	p.mu.Unlock()
	if closed {
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
func (p *proxy) forward(l *link, from, to *net.TCPConn, down bool) {
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
func (p *proxy) pass(l *link, down bool) bool {
	for {
		w, changed := p.now()
		switch {
		case w.refuse, down && w.loseAnswers:
			l.reset()
			return false
		case !down && !w.stallUp, down && !w.stallDown:
			if w.delay > 0 {
				time.Sleep(w.delay)
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
