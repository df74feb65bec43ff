package nats

import (
	"bufio"
	"strconv"
	"strings"

	"github.com/penstock-broker/penstock/hotpath/push"
)

// idHeader names the message for the window in which a stream drops repetitions.
const idHeader = "Nats-Msg-Id"

// A message is what one attempt publishes.
type message struct {
	subject string
	head    []byte // with the version and the empty line
	payload []byte
}

// size is what a server compares with its max_payload.
func (m *message) size() int64 { return int64(len(m.head) + len(m.payload)) }

// head returns the headers of an attempt in the form of NATS.
func head(a *push.Attempt) []byte {
	b := append(make([]byte, 0, 1<<10), "NATS/1.0\r\n"...)
	line := func(name, value string) {
		b = append(append(append(append(b, name...), ": "...), value...), "\r\n"...)
	}
	id := a.Job()
	if r := a.Consumer.Replay; r != nil {
		id += "." + r.ID() // a repetition that was asked for
	}
	line(idHeader, id)
	a.Headers(func(name, value string) {
		if !strings.EqualFold(name, idHeader) {
			line(name, value)
		}
	})
	return append(b, "\r\n"...)
}

// write writes the message as the verb HPUB, with the subject for its acknowledgement.
func (m *message) write(w *bufio.Writer, reply string) error {
	line := make([]byte, 0, 512)
	line = append(append(append(line, "HPUB "...), m.subject...), ' ')
	line = append(append(line, reply...), ' ')
	line = append(strconv.AppendInt(line, int64(len(m.head)), 10), ' ')
	line = append(strconv.AppendInt(line, m.size(), 10), "\r\n"...)
	for _, part := range [][]byte{line, m.head, m.payload, []byte("\r\n")} {
		if _, err := w.Write(part); err != nil {
			return err
		}
	}
	return w.Flush()
}
