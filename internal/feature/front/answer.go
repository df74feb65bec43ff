package front

import (
	"bufio"
	"errors"
	"io"
	"net/http"
	"strconv"
	"sync"
)

// answerPiece is how much of an answer is passed on at once.
const answerPiece = 16 << 10

var readers = sync.Pool{New: func() any { return bufio.NewReaderSize(nil, answerPiece) }}

// keptHere are the headers of an answer that belong to the connection in memory.
var keptHere = map[string]bool{"Connection": true, "Content-Length": true, "Keep-Alive": true,
	"Transfer-Encoding": true, "Upgrade": true}

var errShort = errors.New("front: the answer ended before its end")

// An answer is what goes back to the client of one stream.
type answer struct {
	w    http.ResponseWriter
	pace *pace
	last bool // the connection takes no other request
	// begun says that status and headers were written.
	begun bool
}

// relay passes the answer on that from has. Each part goes out as it comes, where more is to come: an
// answer may be a stream of events.
func (a *answer) relay(r *http.Request, from *half) error {
	from.await() // without a buffer: it may be long
	in := readers.Get().(*bufio.Reader)
	in.Reset(from)
	defer func() {
		in.Reset(nil)
		readers.Put(in)
	}()
	got, err := http.ReadResponse(in, r)
	if err != nil {
		return err
	}
	a.head(got)
	if got.Body == http.NoBody || r.Method == http.MethodHead {
		return a.part(nil, false)
	}
	buf := pieces.Get().(*[]byte)
	defer pieces.Put(buf)
	for sent := int64(0); ; {
		n, err := got.Body.Read((*buf)[:answerPiece])
		sent += int64(n)
		whole := errors.Is(err, io.EOF) || sent == got.ContentLength
		if n > 0 || whole {
			if failed := a.part((*buf)[:n], !whole); failed != nil {
				return failed
			}
		}
		switch {
		case whole:
			return nil
		case err != nil:
			return errShort
		}
	}
}

// head writes status and headers.
func (a *answer) head(got *http.Response) {
	h := a.w.Header()
	for name, values := range got.Header {
		if !keptHere[name] {
			h[name] = values
		}
	}
	if h["Content-Type"] == nil {
		h["Content-Type"] = nil // net/http guesses one that is absent
	}
	if got.ContentLength >= 0 && got.StatusCode != http.StatusNotModified && got.StatusCode != http.StatusNoContent {
		h["Content-Length"] = []string{strconv.FormatInt(got.ContentLength, 10)}
	}
	if a.last {
		h.Set("Connection", "close") // the connection says that it takes no more
	}
	a.begun = true
	a.w.WriteHeader(got.StatusCode)
}

// part writes a part of the body.
func (a *answer) part(p []byte, flush bool) error {
	if err := a.pace.begin(); err != nil {
		return err
	}
	n, err := a.w.Write(p)
	if err == nil && flush {
		err = http.NewResponseController(a.w).Flush()
	}
	a.pace.done(n)
	if errors.Is(err, http.ErrBodyNotAllowed) {
		return nil
	}
	return err
}
