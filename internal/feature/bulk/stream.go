package bulk

import (
	"context"
	"io"
	"time"

	"github.com/penstock-broker/penstock/internal/model/problem"
	"github.com/penstock-broker/penstock/internal/tool/coding"
	"github.com/penstock-broker/penstock/internal/tool/share"
)

// A wire is what comes from a client, or from a server of files. Its bytes are the progress of a body,
// whatever becomes of them: few may be decoded to many. It keeps the error that ended it, which a
// decoder hides.
type wire struct {
	from  io.Reader
	moved func(n int)
	left  int64 // bytes that may still come
	err   error
}

func (w *wire) Read(p []byte) (int, error) {
	if w.err != nil {
		return 0, w.err
	}
	if int64(len(p)) > w.left+1 {
		p = p[:w.left+1]
	}
	n, err := w.from.Read(p)
	w.moved(n)
	if w.left -= int64(n); w.left < 0 {
		n, err = 0, coding.ErrTooLarge
	}
	w.err = err
	return n, err
}

// broken reports whether the body did not come to its end.
func (w *wire) broken() bool { return w.err != nil && w.err != io.EOF && w.err != coding.ErrTooLarge }

// A stream is the text of a body: what comes over the wire, decoded and without its envelope. All that
// is read of a body is read from its stream. io.EOF means that the body came whole and is as it says.
type stream struct {
	wire *wire
	text io.Reader
	most int64 // bytes on the wire, and of the text

	coded bool  // it has a decoder; with a second one few bytes of the wire would take minutes
	form  *form // the envelope; nil: there is none
	ends  []func()
}

// newStream returns the stream of a body. moved is called with the bytes that come.
func newStream(from io.Reader, moved func(n int), most int64) *stream {
	w := &wire{from: from, moved: moved, left: most}
	return &stream{wire: w, text: w, most: most}
}

// decode undoes a coding, whose value is Small, once.
func (s *stream) decode(value string) error {
	switch {
	case value == "":
		return nil
	case s.coded:
		return errCodings
	}
	d, err := coding.NewReader(value, s.text, s.most)
	if err != nil {
		return s.cause(err)
	}
	s.text, s.coded, s.ends = d, true, append(s.ends, d.Close)
	return nil
}

// unwrap takes the envelope off what follows.
func (s *stream) unwrap(boundary string) *form {
	s.form = newForm(s.text, boundary)
	s.text = s.form
	return s.form
}

// Read returns errors of the wire, of package coding, and problems.
func (s *stream) Read(p []byte) (int, error) {
	n, err := s.text.Read(p)
	if err != nil {
		err = s.cause(err)
	}
	return n, err
}

// cause returns the error of the wire or of the envelope, if that is why there is one.
func (s *stream) cause(err error) error {
	switch {
	case s.wire.err != nil && s.wire.err != io.EOF:
		return s.wire.err
	case s.form != nil && s.form.err != nil && s.form.err != io.EOF:
		return s.form.err
	}
	return err
}

func (s *stream) close() {
	for _, end := range s.ends {
		end()
	}
}

// firstPiece is the memory for a text before it has come, bytes; roomPatience the wait for more.
const (
	firstPiece   = 8 << 10
	roomPatience = time.Second
)

// grow makes room for more of a text of at most that many bytes: twice as much as has come. permit counts
// it; nil: it is not counted.
func grow(text []byte, most int, permit *share.Permit) ([]byte, error) {
	room := min(max(2*cap(text), firstPiece), most)
	if permit != nil && !permit.Await(context.Background(), int64(room-cap(text)), roomPatience) {
		return nil, problem.ErrOverloaded
	}
	return append(make([]byte, 0, room), text...), nil
}

// readText reads a text of at most that many bytes to its end, which permit counts.
func readText(from io.Reader, most int, permit *share.Permit) (text []byte, err error) {
	for {
		if len(text) == cap(text) {
			if text, err = grow(text, most+1, permit); err != nil {
				return nil, err
			}
		}
		n, err := from.Read(text[len(text):cap(text)])
		switch text = text[:len(text)+n]; {
		case len(text) > most:
			return nil, coding.ErrTooLarge
		case err == io.EOF:
			return text, nil
		case err != nil:
			return nil, err
		}
	}
}
