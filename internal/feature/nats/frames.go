package nats

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"strconv"
	"strings"
	"time"
)

const (
	// readBuffer bounds a line: INFO of a cluster of hundreds of servers, -ERR, MSG.
	readBuffer = 16 << 10
	// mostSaid bounds a message of a server. An acknowledgement has about a hundred bytes.
	mostSaid = 16 << 10
	// frameTimeout bounds the time from the first byte of a frame to its last one.
	frameTimeout = 30 * time.Second
)

// A frame is one thing that a server says.
type frame struct {
	verb    string // in capital letters
	text    string // what follows it, without quotes; of a message its subject
	head    []byte // of a message; nil: it has none
	payload []byte
}

// frames reads what a server says. It allocates no more than the bounds, whatever the server announces.
type frames struct {
	conn net.Conn
	r    *bufio.Reader
}

func newFrames(conn net.Conn) *frames {
	return &frames{conn, bufio.NewReaderSize(conn, readBuffer)}
}

func (f *frames) buffered() int { return f.r.Buffered() }

// wait waits for the first byte of a frame, for at most a time.
func (f *frames) wait(most time.Duration) error {
	if err := f.conn.SetReadDeadline(time.Now().Add(most)); err != nil {
		return err
	}
	if _, err := f.r.Peek(1); err != nil {
		return err
	}
	return f.conn.SetReadDeadline(time.Now().Add(frameTimeout))
}

// next reads a frame.
func (f *frames) next() (frame, error) {
	line, err := f.r.ReadSlice('\n')
	switch {
	case err == bufio.ErrBufferFull:
		return frame{}, errSaysTooMuch
	case err != nil:
		return frame{}, err
	}
	verb, rest, _ := strings.Cut(strings.TrimRight(string(line), "\r\n"), " ")
	said := frame{verb: strings.ToUpper(verb), text: strings.TrimSpace(rest)}
	switch said.verb {
	case "MSG":
		return f.message(said, 3)
	case "HMSG":
		return f.message(said, 4)
	case "-ERR":
		said.text = strings.Trim(said.text, "'")
	}
	return said, nil
}

// message reads the rest of a message, whose line has so many fields, or one more: a subject for answers.
func (f *frames) message(said frame, fields int) (frame, error) {
	args := strings.Fields(said.text)
	if len(args) != fields && len(args) != fields+1 {
		return frame{}, errNotNATS
	}
	total, err := strconv.ParseUint(args[len(args)-1], 10, 63)
	if err != nil {
		return frame{}, errNotNATS
	}
	head := uint64(0)
	if said.verb == "HMSG" {
		if head, err = strconv.ParseUint(args[len(args)-2], 10, 63); err != nil || head > total {
			return frame{}, errNotNATS
		}
	}
	if total > mostSaid {
		return frame{}, errSaysTooMuch
	}
	body := make([]byte, total+2)
	if _, err := io.ReadFull(f.r, body); err != nil {
		return frame{}, err
	}
	if !bytes.HasSuffix(body, []byte("\r\n")) {
		return frame{}, errNotNATS
	}
	said.text, said.payload = args[0], body[head:total]
	if head > 0 {
		said.head = body[:head]
	}
	return said, nil
}
