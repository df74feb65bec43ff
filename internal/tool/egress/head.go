package egress

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/valyala/fasthttp"
)

const (
	// maxHeadBytes bounds the headers of an answer.
	maxHeadBytes = 32 << 10
	// maxInterim bounds the interim answers (1xx) before an answer.
	maxInterim = 100
)

var (
	errHeadSize = fmt.Errorf("egress: the headers of the answer exceed %d bytes", maxHeadBytes)
	errLengths  = errors.New("egress: the answer has several values of Content-Length")
	errLength   = errors.New("egress: the Content-Length of the answer is no number")
	errTransfer = errors.New("egress: the answer has a Transfer-Encoding other than chunked")
	errHeader   = errors.New("egress: a header of the answer is malformed")
	errInterim  = fmt.Errorf("egress: more than %d interim answers (1xx) came", maxInterim)
)

// headErrors are what is wrong with a head, by how the codec begins to say it.
var headErrors = []struct {
	says string
	err  error
}{
	{"cannot parse content-length", errLength},
	{"unsupported transfer-encoding", errTransfer},
	{"too many transfer-encoding", errTransfer},
	{"malformed mime header", errHeader},
	{"invalid header", errHeader},
}

// headError returns what is wrong with a head that the codec has refused. Behind the beginning its
// text has bytes of the answer.
func headError(err error) error {
	text := strings.TrimPrefix(err.Error(), "error when reading response headers: ")
	for _, e := range headErrors {
		if strings.HasPrefix(text, e.says) {
			return e.err
		}
	}
	return errNotHTTP
}

// tidy makes the head of the next answer one that the codec reads: it passes over interim answers,
// and mends a head that is large, or whose lines end in LF alone. mended reports whether it did, and
// then the connection has no other exchange. Failures of the connection are left to the codec.
func tidy(br *bufio.Reader) (from *bufio.Reader, mended bool, err error) {
	for range maxInterim {
		end, plain, err := wholeHead(br)
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return br, mended, nil
		}
		if err == nil && plain {
			head, _ := br.Peek(end)
			if !interim(head) {
				return br, mended, nil
			}
			_, _ = br.Discard(end)
			continue
		}
		head, err := mend(br)
		switch {
		case err != nil:
			return br, true, err
		case interim(head):
			mended = true
			continue
		}
		return whole(head, br), true, nil
	}
	return br, true, errInterim
}

// parse reads the head of an answer from br, and then its body from the returned reader.
func parse(resp *fasthttp.Response, br *bufio.Reader) (from *bufio.Reader, mended bool, err error) {
	if from, mended, err = tidy(br); err != nil {
		return from, mended, err
	}
	start, _ := from.Peek(len("HTTP/1.1 000"))
	if bytes.HasSuffix(start, []byte(" 000")) { // the codec takes any three digits, and 000 for 200
		return from, mended, errNotHTTP
	}
	err = resp.ReadLimitBody(from, maxAnswerBytes)
	if err == nil {
		return from, mended, nil
	}
	if mended || lost(err) != nil {
		return from, mended, err
	}
	head, err := mend(from) // it is whole, and still there
	if err != nil {
		return from, true, err
	}
	from = whole(head, from)
	return from, true, resp.ReadLimitBody(from, maxAnswerBytes)
}

// whole returns a reader of a head that was mended, and of what follows it.
func whole(head []byte, rest io.Reader) *bufio.Reader {
	return bufio.NewReaderSize(io.MultiReader(bytes.NewReader(head), rest), len(head)+readBuffer)
}

// interim reports whether a head is that of an answer before the answer.
func interim(head []byte) bool {
	head = bytes.TrimLeft(head, "\r\n")
	return len(head) > len("HTTP/1.1 1xx") && string(head[:7]) == "HTTP/1." && string(head[8:10]) == " 1" &&
		string(head[9:12]) != "101"
}

// wholeHead waits until br has a whole head, and returns its length. plain: the codec finds the same
// end.
func wholeHead(br *bufio.Reader) (end int, plain bool, err error) {
	for {
		b, _ := br.Peek(br.Buffered())
		if end, plain = headEnd(b); end > 0 {
			return end, plain, nil
		}
		if _, err := br.Peek(len(b) + 1); err != nil {
			return 0, false, err
		}
	}
}

// headEnd returns the length of the head at the beginning of b; 0: it is not whole. Blank lines
// before a head belong to it, as for the codec.
func headEnd(b []byte) (end int, plain bool) {
	begun := false
	for {
		n := bytes.IndexByte(b[end:], '\n')
		if n < 0 {
			return 0, false
		}
		blank := n == 0 || n == 1 && b[end] == '\r'
		end += n + 1
		switch {
		case !blank:
			begun = true
		case begun:
			return end, end >= 4 && string(b[end-4:end]) == "\r\n\r\n"
		}
	}
}

// mend reads a head and returns it with lines that end in CRLF, with one Content-Length where several
// are equal (RFC 9110, 8.6), and with one Transfer-Encoding: chunked.
func mend(br *bufio.Reader) (head []byte, err error) {
	var f framing
	size := 0
	for {
		line, err := br.ReadSlice('\n')
		text := append([]byte(nil), line...)
		for size += len(line); errors.Is(err, bufio.ErrBufferFull) && size <= maxHeadBytes; size += len(line) {
			line, err = br.ReadSlice('\n')
			text = append(text, line...)
		}
		switch {
		case size > maxHeadBytes:
			return nil, errHeadSize
		case err != nil:
			return nil, err
		}
		text = bytes.TrimSuffix(bytes.TrimSuffix(text, []byte("\n")), []byte("\r"))
		if len(text) == 0 {
			if len(head) == 0 {
				continue
			}
			return append(head, "\r\n"...), nil
		}
		if text, err = f.mend(text); err != nil {
			return nil, err
		}
		if len(text) > 0 {
			head = append(append(head, text...), "\r\n"...)
		}
	}
}

// A framing is what the lines of a head have said so far about where the body ends.
type framing struct {
	length  string
	chunked bool
}

// mend returns a line that the codec reads, empty where the line says nothing new.
func (f *framing) mend(line []byte) ([]byte, error) {
	name, value, found := strings.Cut(string(line), ":")
	again := false
	switch name = strings.TrimRight(name, " \t"); {
	case !found:
	case strings.EqualFold(name, "Content-Length"):
		again = f.length != ""
		for one := range strings.SplitSeq(value, ",") {
			if one = strings.TrimSpace(one); f.length != "" && one != f.length {
				return nil, errLengths
			}
			f.length = one
		}
		line = []byte("Content-Length: " + f.length)
	case strings.EqualFold(name, "Transfer-Encoding"):
		again = f.chunked
		for one := range strings.SplitSeq(value, ",") {
			switch one = strings.TrimSpace(one); {
			case strings.EqualFold(one, "chunked"):
				f.chunked = true
			case one != "" && !strings.EqualFold(one, "identity"):
				return nil, errTransfer
			}
		}
		again = again || !f.chunked
		line = []byte("Transfer-Encoding: chunked")
	}
	if again {
		return nil, nil
	}
	return line, nil
}
