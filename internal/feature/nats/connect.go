package nats

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net"
	"time"
)

const writeBuffer = 16 << 10

// An info is what a server says of itself, as far as it matters.
type info struct {
	Headers      bool   `json:"headers"`
	MaxPayload   int64  `json:"max_payload"`
	TLSRequired  bool   `json:"tls_required"`
	TLSAvailable bool   `json:"tls_available"`
	Nonce        string `json:"nonce"`
	LameDuck     bool   `json:"ldm"`
}

// A hello is the options of CONNECT.
type hello struct {
	Verbose      bool   `json:"verbose"`
	Pedantic     bool   `json:"pedantic"`
	TLSRequired  bool   `json:"tls_required"`
	Name         string `json:"name"`
	Lang         string `json:"lang"`
	Version      string `json:"version"`
	Protocol     int    `json:"protocol"`
	Headers      bool   `json:"headers"`
	NoResponders bool   `json:"no_responders"`
	Echo         bool   `json:"echo"`
	login
}

// connect makes a connection to a server and logs in.
func (s *servers) connect(to server) (*link, error) {
	credentials, err := loginOf(to.authorization)
	if err != nil {
		return nil, errLogin
	}
	raw, err := s.o.Client.Dial(s.life, to.rule, to.address())
	if err != nil {
		return nil, &connectError{err}
	}
	ctx, cancel := context.WithTimeout(s.life, s.o.Greeting)
	defer cancel()
	l, err := s.greet(ctx, raw, to, credentials)
	if err != nil {
		_ = raw.Close()
		return nil, err
	}
	return l, nil
}

// greet takes the first words of a server, secures the connection and logs in, before ctx ends.
func (s *servers) greet(ctx context.Context, raw net.Conn, to server, credentials login) (*link, error) {
	deadline, _ := ctx.Deadline()
	if err := raw.SetDeadline(deadline); err != nil {
		return nil, err
	}
	conn, frames := raw, newFrames(raw)
	first, err := frames.next()
	if err != nil {
		return nil, err
	}
	if first.verb != "INFO" {
		return nil, errNotNATS
	}
	said, err := infoOf(first)
	switch {
	case err != nil:
		return nil, err
	case !said.Headers:
		return nil, errOld
	case to.secure && !said.TLSRequired && !said.TLSAvailable:
		return nil, errNoTLS
	case to.secure || said.TLSRequired:
		if frames.buffered() > 0 { // unsecured words that would count as secured ones
			return nil, errNotNATS
		}
		if conn, err = s.o.Client.Secure(ctx, raw, to.host); err != nil {
			return nil, &connectError{err}
		}
		frames = newFrames(conn)
	}
	if err := credentials.sign(said.Nonce); err != nil {
		return nil, err
	}
	l := &link{raw: raw, conn: conn, frames: frames, w: bufio.NewWriterSize(conn, writeBuffer),
		inbox: "_INBOX." + rand.Text(), turn: make(chan struct{}, 1), ended: make(chan struct{}),
		waiting: map[uint64]*flight{}, used: time.Now()}
	l.learn(said)
	if err := l.logIn(conn != raw, credentials); err != nil {
		return nil, err
	}
	return l, raw.SetDeadline(time.Time{})
}

// logIn sends CONNECT, subscribes to the acknowledgements, and waits until the server has taken both.
func (l *link) logIn(secured bool, credentials login) error {
	options, err := json.Marshal(hello{TLSRequired: secured, Name: "penstock", Lang: "go", Version: "1", Protocol: 1,
		Headers: true, NoResponders: true, login: credentials})
	if err != nil {
		return err
	}
	fmt.Fprintf(l.w, "CONNECT %s\r\nSUB %s.* 1\r\nPING\r\n", options, l.inbox)
	if err := l.w.Flush(); err != nil {
		return err
	}
	for {
		f, err := l.frames.next()
		if err != nil {
			return err
		}
		switch f.verb {
		case "PONG":
			return nil
		case "-ERR":
			return &refusal{f.text}
		case "INFO":
			said, err := infoOf(f)
			if err != nil {
				return err
			}
			l.learn(said)
		case "+OK", "PING":
		default:
			return errNotNATS
		}
	}
}

func infoOf(f frame) (info, error) {
	var said info
	if json.Unmarshal([]byte(f.text), &said) != nil || said.MaxPayload <= 0 {
		return info{}, errNotNATS
	}
	return said, nil
}

// learn keeps what a server says of itself.
func (l *link) learn(said info) {
	l.mostPayload.Store(said.MaxPayload)
	if said.LameDuck { // it is about to stop
		l.retired.Store(true)
	}
}
