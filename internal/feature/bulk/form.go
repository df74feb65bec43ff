package bulk

import (
	"bytes"
	"errors"
	"io"
	"mime"
	"mime/multipart"
	"strings"

	"github.com/penstock-broker/penstock/internal/model/problem"
	"github.com/penstock-broker/penstock/internal/tool/coding"
	"github.com/penstock-broker/penstock/internal/tool/share"
)

// The parts of a form, in their order.
const optionsPart, filePart = "options", "file"

const (
	// maxHead bounds what is read of a form to the beginning of a part: its head, and what stands
	// before the first one, bytes.
	maxHead = 16 << 10
	// maxBoundary is the length of the longest boundary (RFC 2046).
	maxBoundary = 70
)

var (
	errForm = problem.New(400, "invalid_form", "The body is not multipart/form-data as its Content-Type says: a "+
		"boundary or the head of a part is missing or malformed.")
	errHead   = problem.Newf(400, "invalid_form", "The head of a part is longer than %d bytes.", maxHead)
	errNoFile = problem.New(400, "invalid_form", "The form has no part file.")
	errOrder  = problem.New(400, "invalid_form", "The part options must come before the part file, which is read "+
		"as it comes.")
	errOptions    = problem.Newf(413, "body_too_large", "The part options is longer than %d bytes.", maxRequest)
	errPartCoding = problem.New(415, "unsupported_media_type", "A part is sent as it is, without a "+
		"Content-Transfer-Encoding.")
	errFileFormat = problem.New(400, "invalid_format",
		`The format of the file is not known: set Format to "csv" or "ndjson" in the part options, or name the file .csv, .ndjson or .jsonl, or give the part the type text/csv or application/x-ndjson.`)
)

// A form is a body of multipart/form-data. As a reader it is the content of its part file; what follows
// that is read, to the end of the body, before io.EOF.
type form struct {
	head  gate
	parts *multipart.Reader
	part  *multipart.Part // read now
	told  bool            // there were options
	err   error           // how the part file ended
}

func newForm(from io.Reader, boundary string) *form {
	f := &form{head: gate{from: from}}
	f.parts = multipart.NewReader(&f.head, boundary)
	return f
}

// next goes to the next part. io.EOF: there is none.
func (f *form) next() error {
	f.head.left = maxHead
	part, err := f.parts.NextRawPart()
	f.head.left = open
	switch {
	case err == io.EOF: // an error that wraps io.EOF is none of a whole form
		return err
	case err != nil:
		return malformed(err)
	}
	f.part = part
	switch strings.ToLower(part.Header.Get("Content-Transfer-Encoding")) {
	case "", "7bit", "8bit", "binary":
		return nil
	}
	return errPartCoding
}

// malformed returns the refusal of a form that cannot be read.
func malformed(err error) error {
	var known *problem.Problem
	switch {
	case errors.As(err, &known):
		return known
	case errors.Is(err, coding.ErrTooLarge):
		return coding.ErrTooLarge
	case errors.Is(err, coding.ErrBroken):
		return coding.ErrBroken
	}
	return errForm
}

// begin reads the options, if there are any, which permit counts, and goes to the part file.
func (f *form) begin(permit *share.Permit) (options []byte, err error) {
	if err = f.next(); err == io.EOF {
		return nil, errNoFile
	}
	if err == nil && f.part.FormName() == optionsPart {
		f.told = true
		options, err = readText(f.part, maxRequest, permit)
		switch {
		case errors.Is(err, coding.ErrTooLarge):
			return nil, errOptions
		case err != nil:
			return nil, malformed(err)
		}
		if err = f.next(); err == io.EOF {
			return nil, errNoFile
		}
	}
	if err == nil && f.part.FormName() != filePart {
		err = unexpected(f.part.FormName())
	}
	return options, err
}

// unexpected refuses a part that does not belong where it is.
func unexpected(name string) error {
	switch name {
	case optionsPart:
		return problem.New(400, "duplicate_field", "The form has a second part options.")
	case filePart:
		return problem.New(400, "duplicate_field", "The form has a second part file.")
	case "":
		return problem.New(400, "invalid_form", "A part of the form has no name; the parts are options and file.")
	}
	return problem.Newf(400, "unknown_field", "There is no part %+q; the parts of the form are options and file.",
		cut(name))
}

// Read returns the content of the part file.
func (f *form) Read(p []byte) (int, error) {
	if f.err != nil {
		return 0, f.err
	}
	n, err := f.part.Read(p)
	switch {
	case err == io.EOF:
		f.err = f.end()
	case err != nil:
		f.err = malformed(err)
	}
	return n, f.err
}

// end requires that the part file was the last one, and reads on to the end of the body.
func (f *form) end() error {
	err := f.next()
	switch {
	case err == nil && f.part.FormName() == optionsPart && !f.told:
		return errOrder
	case err == nil:
		return unexpected(f.part.FormName())
	case err != io.EOF:
		return err
	}
	if _, err := io.Copy(io.Discard, f.head.from); err != nil {
		return malformed(err)
	}
	return io.EOF
}

// A gate lets through what is left, or anything while it is open: a multipart.Reader keeps the head of a
// part in memory, however long it is. Behind the end of what it reads is a line break, which the last
// boundary need not have, and then an error: a multipart.Reader takes io.EOF in the head of a part for
// the end of a whole form.
type gate struct {
	from  io.Reader
	left  int
	last  byte   // that came, until lines is known
	lines []byte // the first line break; nil: none came yet
	ended bool
}

const open = -1

func (g *gate) Read(p []byte) (n int, err error) {
	switch {
	case g.ended:
		n = copy(p, g.lines)
		if g.lines = g.lines[n:]; n == 0 {
			err = io.ErrUnexpectedEOF
		}
		return n, err
	case g.left == 0:
		return 0, errHead
	case g.left != open && len(p) > g.left:
		p = p[:g.left]
	}
	n, err = g.from.Read(p)
	if g.left != open {
		g.left -= n
	}
	if g.lines == nil && n > 0 {
		g.see(p[:n])
	}
	if g.ended = err == io.EOF; g.ended {
		err = nil
	}
	return n, err
}

// see looks for the first line break.
func (g *gate) see(p []byte) {
	i := bytes.IndexByte(p, '\n')
	if i > 0 {
		g.last = p[i-1]
	}
	switch {
	case i < 0:
		g.last = p[len(p)-1]
	case g.last == '\r':
		g.lines = []byte("\r\n")
	default:
		g.lines = []byte("\n")
	}
}

// codings returns the content codings of the part.
func (f *form) codings() (string, error) {
	return codingsOf(strings.Join(f.part.Header[coding.Header], ","))
}

// format returns the format of the part file: that of its media type, or else of its name; "" if neither
// tells.
func (f *form) format() (string, error) {
	if kind, params, err := mime.ParseMediaType(f.part.Header.Get("Content-Type")); err == nil {
		if format, err := formatOf(kind, params); format != "" || err != nil {
			return format, err
		}
	}
	name := strings.TrimSuffix(strings.ToLower(f.part.FileName()), ".gz")
	switch {
	case strings.HasSuffix(name, ".csv"):
		return CSV, nil
	case strings.HasSuffix(name, ".ndjson"), strings.HasSuffix(name, ".jsonl"):
		return NDJSON, nil
	}
	return "", nil
}
