package front

import (
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
)

// bodyPiece is how much of a body is read at once.
const bodyPiece = 16 << 10

// frame is room before and after a piece for its size as a chunk.
const frame = 16

var pieces = sync.Pool{New: func() any {
	b := make([]byte, frame+bodyPiece+2)
	return &b
}}

// perHop are the headers that are not passed on: they belong to one connection, or are written anew.
// An Expect is answered here when the body is first asked for, which is at once, as over HTTP/1.1.
var perHop = map[string]bool{"Connection": true, "Content-Length": true, "Expect": true, "Host": true,
	"Keep-Alive": true, "Proxy-Connection": true, "Te": true, "Trailer": true, "Transfer-Encoding": true, "Upgrade": true}

// writable reports whether a request can be written as HTTP/1.1 so that it is read as what it is.
// net/http refuses most of what it cannot; nothing here depends on that.
func writable(r *http.Request) bool {
	if !isToken(r.Method) || !isTarget(r) || !isValue(r.Host) || strings.ContainsRune(r.Host, ' ') {
		return false
	}
	for name, values := range r.Header {
		if !isToken(name) {
			return false
		}
		for _, v := range values {
			if !isValue(v) {
				return false
			}
		}
	}
	return true
}

// isTarget reports whether the target is a path, or what OPTIONS and CONNECT have in its place.
func isTarget(r *http.Request) bool {
	t := r.RequestURI
	for i := range len(t) {
		if t[i] <= ' ' || t[i] == 0x7f {
			return false
		}
	}
	switch {
	case t == "":
		return false
	case r.Method == http.MethodConnect:
		return true
	case t == "*":
		return r.Method == http.MethodOptions
	}
	return t[0] == '/'
}

func isToken(s string) bool {
	for i := range len(s) {
		c := s[i]
		if c <= ' ' || c >= 0x7f || strings.IndexByte(`"(),/:;<=>?@[\]{}`, c) >= 0 {
			return false
		}
	}
	return s != ""
}

func isValue(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' && c != '\t' || c == 0x7f {
			return false
		}
	}
	return true
}

// head is the request line and the headers of r.
func head(b []byte, r *http.Request) []byte {
	b = append(b, r.Method...)
	b = append(b, ' ')
	b = append(b, r.RequestURI...)
	b = append(b, " HTTP/1.1\r\nHost: "...)
	b = append(b, r.Host...)
	b = append(b, "\r\n"...)
	for name, values := range r.Header {
		if perHop[name] {
			continue
		}
		for _, v := range values {
			b = append(b, name...)
			b = append(b, ": "...)
			b = append(b, v...)
			b = append(b, "\r\n"...)
		}
	}
	switch {
	case r.ContentLength < 0:
		b = append(b, "Transfer-Encoding: chunked\r\n"...)
	case r.ContentLength > 0 || r.Header["Content-Length"] != nil:
		b = append(b, "Content-Length: "...)
		b = strconv.AppendInt(b, r.ContentLength, 10)
		b = append(b, "\r\n"...)
	}
	return append(b, "\r\n"...)
}

// measured reports whether the header content-length can be the length of the body: it is absent, or
// one number, and that of a request without a body is 0. net/http takes a wrong one of these for 0, and
// looks at the frames of a body only.
func measured(r *http.Request) bool {
	said := r.Header["Content-Length"]
	if said == nil {
		return true
	}
	if len(said) != 1 {
		return false
	}
	n, err := strconv.ParseUint(said[0], 10, 63)
	return err == nil && n == uint64(max(r.ContentLength, 0))
}

var errCut = errors.New("front: the body is not as long as announced")

// sendBody writes the body of r to w. A body that did not come whole ends w, so that the server does
// not take what came for all of it; trailers are dropped. errCut: it was not as long as announced.
func sendBody(w *half, r *http.Request) error {
	buf := pieces.Get().(*[]byte)
	defer pieces.Put(buf)
	if r.ContentLength >= 0 {
		return sendAnnounced(w, r, (*buf)[:bodyPiece])
	}
	for {
		n, err := r.Body.Read((*buf)[frame : frame+bodyPiece])
		if n > 0 {
			if _, failed := w.Write(chunk(*buf, n)); failed != nil {
				return nil // the server wants no more of it
			}
		}
		switch {
		case err == nil:
		case err != io.EOF:
			w.end()
			return nil
		default:
			_, _ = w.Write([]byte("0\r\n\r\n")) // as above
			return nil
		}
	}
}

// sendAnnounced writes a body of a length. Its last byte waits for the end of the stream, which says
// that no more comes: the server would take the body for whole.
func sendAnnounced(w *half, r *http.Request, piece []byte) error {
	kept := 0
	for left := r.ContentLength; ; {
		n, err := r.Body.Read(piece[kept:])
		n, kept = n+kept, 0
		switch {
		case err != nil && err != io.EOF:
			if r.Context().Err() == nil {
				return errCut
			}
			w.end()
			return nil
		case err == nil && int64(n) >= left:
			n, kept = n-1, 1
		}
		if _, failed := w.Write(piece[:n]); failed != nil || err != nil {
			return nil // the server wants no more of it, or has it
		}
		left -= int64(n)
		copy(piece, piece[n:n+kept])
	}
}

// chunk makes a chunk of the n bytes that begin at frame.
func chunk(b []byte, n int) []byte {
	var size [frame]byte
	text := append(strconv.AppendInt(size[:0], int64(n), 16), "\r\n"...)
	from := frame - len(text)
	copy(b[from:], text)
	return append(b[from:frame+n], "\r\n"...)
}
