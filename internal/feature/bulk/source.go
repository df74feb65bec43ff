package bulk

import (
	"context"
	"errors"
	"io"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/hotpath/publish"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/model/problem"
	"github.com/penstock-broker/penstock/internal/tool/share"
)

// A chunkReader reads the body of a bulk from the store, a chunk at a time.
type chunkReader struct {
	ctx   context.Context // of the run of the bulk
	store Store
	id    ident.ID
	size  int64 // of each chunk but the last
	end   int64 // bytes of the body
	at    int64
	chunk []byte // the rest of the present one
}

func (r *chunkReader) Read(p []byte) (int, error) {
	if len(r.chunk) == 0 {
		if r.at >= r.end {
			return 0, io.EOF
		}
		body, err := r.store.BulkChunk(r.ctx, r.id, r.at/r.size)
		if err != nil {
			return 0, err
		}
		if r.chunk = body[min(r.at%r.size, int64(len(body))):]; len(r.chunk) == 0 {
			return 0, io.ErrUnexpectedEOF
		}
	}
	n := copy(p, r.chunk)
	r.chunk, r.at = r.chunk[n:], r.at+int64(n)
	return n, nil
}

// A source makes messages from the rows of a bulk, from its checkpoint on.
type source struct {
	rows     *rowReader
	columns  []string // of CSV
	record   recordParser
	template *compiled // nil: the columns or members are those of batch lines
	maker    *publish.Drafter
	longest  int
	at       durable.BulkPosition
	ahead    struct { // the row that was read and not used yet
		read bool
		text []byte
		err  error
	}
}

// open returns the source of a bulk. Its errors are problems where the body can never be expanded.
func (b *Bulks) open(ctx context.Context, of *durable.Bulk, spec *Spec, longest int) (*source, error) {
	s := &source{longest: longest, at: of.At}
	if spec.Template != nil {
		var err error
		if s.template, err = compile(spec.Template); err != nil {
			return nil, err
		}
	}
	reader := func(at int64) *rowReader {
		chunks := &chunkReader{ctx: ctx, store: b.Store, id: of.ID, size: int64(spec.ChunkSize), end: of.Bytes, at: at}
		rows := newRowReader(chunks, spec.Format == CSV, at, longest)
		rows.room, rows.key = b.Bodies, share.Producer(of.ProducerNo)
		return rows
	}
	s.rows = reader(0)
	if spec.Format == CSV {
		first, err := s.rows.next(ctx)
		if errors.Is(err, io.EOF) {
			return nil, errNoHeader
		}
		if errors.Is(err, errRowTooLong) {
			return nil, errHeader
		}
		if err != nil {
			return nil, err
		}
		if s.columns, err = checkHeader(first, s.template); err != nil {
			return nil, err
		}
	}
	if of.At.Byte > s.rows.at {
		s.rows.release()
		s.rows = reader(of.At.Byte)
	}
	return s, nil
}

// checkHeader returns the columns of a header line, if rows with them can become messages.
func checkHeader(line []byte, t *compiled) ([]string, error) {
	columns, err := header(line)
	if err != nil {
		return nil, err
	}
	if t == nil {
		return columns, publish.CheckColumns(columns)
	}
	if err := publish.CheckNames(columns); err != nil {
		return nil, err
	}
	return columns, t.check(columns)
}

// more returns io.EOF behind the last row. It reads the next row, and leaves it to next.
func (s *source) more(ctx context.Context) error {
	if !s.ahead.read {
		s.ahead.text, s.ahead.err = s.rows.next(ctx)
		s.ahead.read = true
	}
	if errors.Is(s.ahead.err, errRowTooLong) {
		return nil
	}
	return s.ahead.err
}

// next returns what the next row becomes, with its number. bad is the reason why it becomes nothing;
// io.EOF comes alone, after the last row.
func (s *source) next(ctx context.Context) (row publish.Row, bad, err error) {
	if err := s.more(ctx); err != nil {
		return row, nil, err
	}
	text, err := s.ahead.text, s.ahead.err
	s.ahead.read = false
	s.at = durable.BulkPosition{Row: s.at.Row + 1, Byte: s.rows.at}
	if err != nil {
		hint := ""
		if s.columns != nil {
			hint = " A quote that is never closed makes the rest of the body one row."
		}
		return row, problem.Newf(413, "body_too_large", "The row is longer than %d bytes.%s", s.longest, hint), nil
	}
	row, bad = s.make(ctx, text)
	return row, bad, nil
}

func (s *source) make(ctx context.Context, text []byte) (publish.Row, error) {
	if s.columns == nil && s.template == nil {
		return s.maker.Line(ctx, text)
	}
	var values map[string]cell
	if s.columns == nil {
		var err error
		if values, err = object(text); err != nil {
			return publish.Row{}, err
		}
	} else {
		cells, err := s.record.cells(text)
		if err != nil {
			return publish.Row{}, err
		}
		if len(cells) != len(s.columns) {
			return publish.Row{}, errCells(len(cells), len(s.columns))
		}
		if s.template == nil {
			return s.maker.Record(ctx, s.columns, cells)
		}
		values = make(map[string]cell, len(cells))
		for i, name := range s.columns {
			values[name] = cell{text: cells[i]}
		}
	}
	filled, err := s.template.fill(values, s.longest)
	if err != nil {
		return publish.Row{}, err
	}
	return s.maker.Record(ctx, s.template.names, filled)
}
