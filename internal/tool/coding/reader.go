package coding

import (
	"bufio"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"errors"
	"io"
	"strings"

	"github.com/klauspost/compress/zstd"
	"github.com/molecule-man/go-brrr"
)

// Window bounds the memory of a Reader of a value that is Small, bytes: the window of 32 KiB, tables and
// a buffer.
const Window = 64 << 10

// Small reports whether a Reader of a value that Clean returned takes little memory, and little time
// between two reads of what it decodes: gzip or deflate, once. A decoder of zstd needs 8 MiB, one of br
// twice 16 MiB. Two codings make millions of bytes of each one.
func Small(value string) bool {
	codings := codingsIn(value)
	for _, name := range codings {
		switch name {
		case "gzip", "x-gzip", "deflate":
		default:
			return false
		}
	}
	return len(codings) <= 1
}

// codingsIn returns the names in a value that Clean returned, in the order in which they were applied.
func codingsIn(value string) []string {
	if value == "" {
		return nil
	}
	names := strings.Split(value, ",")
	for i, name := range names {
		names[i] = strings.ToLower(strings.TrimSpace(name))
	}
	return names
}

// A Reader undoes codings while it is read. Its io.EOF means that the coded bytes ended where their
// codings do. After another error it is not read again.
type Reader struct {
	top     io.Reader
	closers []io.Closer
}

// NewReader returns a Reader of coded bytes by a value that Clean returned. Neither what it returns nor
// what it makes that of has more than most bytes: beyond that the error is ErrTooLarge. The other errors
// are ErrUnknown and ErrBroken, the latter also where reading fails. It may read already. It is to be
// closed.
func NewReader(value string, from io.Reader, most int64) (*Reader, error) {
	codings := codingsIn(value)
	if len(codings) > maxCodings {
		return nil, ErrUnknown
	}
	r := &Reader{top: from}
	for i := len(codings) - 1; i >= 0; i-- {
		d, err := decoder(codings[i], r.top)
		if err != nil {
			r.Close()
			return nil, failure(err)
		}
		if c, ok := d.(io.Closer); ok {
			r.closers = append(r.closers, c)
		}
		r.top = &bounded{d, most}
	}
	return r, nil
}

// Read returns decoded bytes.
func (r *Reader) Read(p []byte) (int, error) {
	n, err := r.top.Read(p)
	if err != nil && err != io.EOF { // an error that wraps io.EOF is none of a whole body
		err = failure(err)
	}
	return n, err
}

// Close gives up what the decoders have.
func (r *Reader) Close() {
	for _, c := range r.closers {
		_ = c.Close()
	}
}

// failure returns the error of this package for one of a decoder. A decoder may wrap the error of the
// one below it.
func failure(err error) error {
	for _, known := range []error{ErrUnknown, ErrTooLarge} {
		if errors.Is(err, known) {
			return known
		}
	}
	return ErrBroken
}

// decoder returns the reader that undoes one coding.
func decoder(name string, r io.Reader) (io.Reader, error) {
	switch name {
	case "gzip", "x-gzip":
		return gzip.NewReader(r)
	case "deflate":
		return inflater(r)
	case "br":
		return brrr.NewReader(r), nil
	case "zstd":
		d, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
			zstd.WithDecoderMaxWindow(maxWindow))
		if err != nil {
			return nil, err
		}
		return d.IOReadCloser(), nil
	}
	return nil, ErrUnknown
}

// inflater reads the zlib format, which deflate means, and raw deflate, which some senders take for
// it.
func inflater(r io.Reader) (io.Reader, error) {
	b := bufio.NewReader(r)
	if head, err := b.Peek(2); err == nil && head[0]&0x0f == 8 && (int(head[0])<<8|int(head[1]))%31 == 0 {
		z, err := zlib.NewReader(b)
		return exact{z, b}, err
	}
	return exact{flate.NewReader(b), b}, nil
}

// An exact reader fails with ErrBroken where something is behind the end of its decoder, which reads
// byte by byte. A decoder of gzip or zstd reads on, to the end of what it has.
type exact struct {
	io.Reader
	from *bufio.Reader
}

func (e exact) Read(p []byte) (int, error) {
	n, err := e.Reader.Read(p)
	if err == io.EOF {
		if _, behind := e.from.Peek(1); behind == nil {
			err = ErrBroken
		} else {
			err = behind
		}
	}
	return n, err
}

// A bounded reader fails with ErrTooLarge behind left bytes.
type bounded struct {
	io.Reader
	left int64
}

func (b *bounded) Read(p []byte) (int, error) {
	if int64(len(p)) > b.left+1 {
		p = p[:b.left+1]
	}
	n, err := b.Reader.Read(p)
	if b.left -= int64(n); b.left < 0 {
		b.left = 0
		return 0, ErrTooLarge
	}
	return n, err
}
