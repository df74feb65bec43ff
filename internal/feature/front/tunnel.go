package front

import (
	"crypto/tls"
	"net"
	"time"
)

// firstByte is how soon a request must begin on a connection of HTTP/1.1 over TLS: the same as
// without TLS.
const firstByte = 30 * time.Second

// A connDeadline is that of writing to a connection.
type connDeadline struct{ net.Conn }

func (c connDeadline) writeBy(t time.Time) error { return c.SetWriteDeadline(t) }

// tunnel carries the bytes of HTTP/1.1 between a client with TLS and the HTTP/1.1 server, until one
// of them closes. It reads ahead, so that the server sees a client that has left.
func (f *Front) tunnel(conn *tls.Conn) {
	defer conn.Close()
	buf := pieces.Get().(*[]byte)
	defer pieces.Put(buf)
	_ = conn.SetReadDeadline(time.Now().Add(firstByte)) // a closed connection says so when it is read
	n, err := conn.Read(*buf)
	defer f.keep(conn)()
	if err != nil && n == 0 {
		return
	}
	_ = conn.SetReadDeadline(time.Time{}) // the server has its own
	client := clientOf(conn)
	link := newLink()
	defer link.abort()
	state := conn.ConnectionState()
	in := &inside{link: link, local: conn.LocalAddr(), remote: conn.RemoteAddr(), slow: connDeadline{conn},
		late: client.Late, client: client, closed: make(chan struct{})}
	_, _ = link.requests.Write((*buf)[:n]) // there is room
	if f.inside.enter(wrap(in, &state)) != nil {
		return
	}
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		carryIn(link, conn)
	}()
	carryOut(conn, link, *buf)
	link.abort()
	_ = conn.Close() // it reads out what still comes, if the server wants that
	<-gone
}

// carryIn passes on what the client sends. At its end the server sees the end.
func carryIn(link *link, conn *tls.Conn) {
	buf := pieces.Get().(*[]byte)
	defer pieces.Put(buf)
	for {
		n, err := conn.Read(*buf)
		if n > 0 {
			if _, failed := link.requests.Write((*buf)[:n]); failed != nil {
				return
			}
		}
		if err != nil {
			link.requests.end()
			return
		}
	}
}

// carryOut passes on what the server answers, until it closes or the client does not read.
func carryOut(conn *tls.Conn, link *link, buf []byte) {
	for {
		n, err := link.answers.Read(buf)
		if n > 0 {
			if _, failed := conn.Write(buf[:n]); failed != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}
