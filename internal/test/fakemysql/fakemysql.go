// Package fakemysql is a server that speaks the protocol of MySQL and has no database: it says that it is a
// product that is not installed where the tests run. It takes every user, and answers each statement
// without an error.
package fakemysql

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
)

// A Server answers until Close.
type Server struct {
	listener net.Listener
	version  string
	vars     map[string]string
	conns    sync.WaitGroup

	mu         sync.Mutex
	open       map[net.Conn]bool // nil: the server is closed
	statements []string
}

// Start starts a server on loopback. version is what VERSION() says, vars what SHOW VARIABLES shows.
func Start(version string, vars map[string]string) (*Server, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &Server{listener: l, version: version, vars: vars, open: map[net.Conn]bool{}}
	s.conns.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			s.mu.Lock()
			closed := s.open == nil
			if !closed {
				s.open[c] = true
				s.conns.Go(func() { s.serve(c) })
			}
			s.mu.Unlock()
			if closed {
				_ = c.Close()
			}
		}
	})
	return s, nil
}

// DSN is where it is, with a user and a database of any name.
func (s *Server) DSN() string { return "u:p@tcp(" + s.listener.Addr().String() + ")/d" }

// Statements returns what it was asked so far.
func (s *Server) Statements() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.statements...)
}

// Close ends the server and its connections.
func (s *Server) Close() error {
	err := s.listener.Close()
	s.mu.Lock()
	for c := range s.open {
		err = errors.Join(err, c.Close())
	}
	s.open = nil
	s.mu.Unlock()
	s.conns.Wait()
	return err
}

// The commands of the protocol that need an answer of their own.
const (
	comQuit  = 1
	comQuery = 3
)

// ok is the packet after a statement without rows, end the one after a list.
var (
	ok  = []byte{0, 0, 0, 2, 0, 0, 0}
	end = []byte{0xfe, 0, 0, 2, 0}
)

func (s *Server) serve(c net.Conn) {
	defer func() {
		s.mu.Lock()
		if s.open != nil {
			delete(s.open, c)
			_ = c.Close()
		}
		s.mu.Unlock()
	}()
	in := bufio.NewReader(c)
	if send(c, 0, s.greeting()) != nil {
		return
	}
	if _, _, err := receive(in); err != nil {
		return
	}
	if send(c, 2, ok) != nil {
		return
	}
	for {
		_, packet, err := receive(in)
		if err != nil || len(packet) == 0 || packet[0] == comQuit {
			return
		}
		answer := [][]byte{ok}
		if packet[0] == comQuery {
			answer = s.answer(string(packet[1:]))
		}
		for i, p := range answer {
			if send(c, byte(i+1), p) != nil {
				return
			}
		}
	}
}

// greeting is the first packet: protocol 10, with a plugin whose answer is not looked at.
func (s *Server) greeting() []byte {
	const capabilities = 1 | 2 | 8 | 0x200 | 0x2000 | 0x8000 | 0x10000 | 0x20000 | 0x80000
	p := append([]byte{10}, s.version...)
	p = append(p, 0, 1, 0, 0, 0)
	p = append(p, "12345678\x00"...)
	p = binary.LittleEndian.AppendUint16(p, capabilities&0xffff)
	p = append(p, 63, 2, 0)
	p = binary.LittleEndian.AppendUint16(p, capabilities>>16)
	p = append(p, 21)
	p = append(p, make([]byte, 10)...)
	return append(p, "123456789012\x00mysql_native_password\x00"...)
}

// answer returns the packets after a statement.
func (s *Server) answer(statement string) [][]byte {
	s.mu.Lock()
	s.statements = append(s.statements, strings.TrimSpace(statement))
	s.mu.Unlock()
	switch {
	case strings.Contains(statement, "VERSION()"):
		return list([]string{"VERSION()"}, [][]string{{s.version}})
	case strings.Contains(statement, "VARIABLES"):
		var rows [][]string
		for name, value := range s.vars {
			rows = append(rows, []string{name, value})
		}
		return list([]string{"Variable_name", "Value"}, rows)
	}
	return [][]byte{ok}
}

func list(columns []string, rows [][]string) [][]byte {
	packets := [][]byte{{byte(len(columns))}}
	for _, name := range columns {
		var p []byte
		for _, text := range []string{"def", "", "", "", name, name} {
			p = append(append(p, byte(len(text))), text...)
		}
		packets = append(packets, append(p, 0x0c, 63, 0, 255, 0, 0, 0, 0xfd, 0, 0, 0, 0, 0))
	}
	packets = append(packets, end)
	for _, row := range rows {
		var p []byte
		for _, text := range row {
			p = append(append(p, byte(len(text))), text...)
		}
		packets = append(packets, p)
	}
	return append(packets, end)
}

func send(w io.Writer, sequence byte, body []byte) error {
	head := []byte{byte(len(body)), byte(len(body) >> 8), byte(len(body) >> 16), sequence}
	_, err := w.Write(append(head, body...))
	return err
}

func receive(r io.Reader) (sequence byte, body []byte, err error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, nil, err
	}
	body = make([]byte, int(head[0])|int(head[1])<<8|int(head[2])<<16)
	_, err = io.ReadFull(r, body)
	return head[3], body, err
}
