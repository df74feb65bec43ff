package bulk

import (
	"bytes"
	"encoding/csv"
	"errors"
	"io"

	"github.com/penstock-broker/penstock/internal/model/problem"
)

var errRecord = problem.New(400, "invalid_line",
	`The row is not CSV of RFC 4180: a quote is missing, or stands in a cell that does not begin with one.`)

// A recordParser reads the cells of CSV records, of which it gets one at a time.
type recordParser struct {
	raw  recordBytes
	csv  *csv.Reader // nil: a new one is needed, since the last one may have a rest of its record
	next int64       // offset of the next record
}

type recordBytes struct{ rest []byte }

// Read gives csv.Reader the bytes of one record, and no more.
func (r *recordBytes) Read(p []byte) (int, error) {
	if len(r.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

// cells returns the cells of a record without its line break, valid until the next call.
func (p *recordParser) cells(record []byte) ([]string, error) {
	if len(record) > mostColumns && cellsIn(record) > mostColumns {
		return nil, errManyCells
	}
	if p.csv == nil {
		p.csv, p.next = csv.NewReader(&p.raw), 0
		p.csv.FieldsPerRecord = -1
		p.csv.ReuseRecord = true
	}
	// csv.Reader turns a CRLF inside quotes into LF, unless another CR is before it.
	if bytes.Contains(record, []byte("\r\n")) {
		record = bytes.ReplaceAll(record, []byte("\r\n"), []byte("\r\r\n"))
	}
	record = append(record[:len(record):len(record)], '\n')
	p.raw.rest = record
	p.next += int64(len(record))
	cells, err := p.csv.Read()
	if err != nil || p.csv.InputOffset() != p.next {
		p.csv = nil
		return nil, errRecord
	}
	return cells, nil
}

// cellsIn counts the cells of a record, up to a few more than mostColumns.
func cellsIn(record []byte) int {
	n := 1
	if bytes.IndexByte(record, '"') < 0 {
		return n + bytes.Count(record, []byte{','})
	}
	for quoted, i := false, 0; i < len(record) && n <= mostColumns; i++ {
		switch record[i] {
		case '"':
			quoted = !quoted // a quote in a cell is doubled
		case ',':
			if !quoted {
				n++
			}
		}
	}
	return n
}

// header returns the names of the columns in the first record.
func header(record []byte) ([]string, error) {
	var p recordParser
	cells, err := p.cells(record)
	switch {
	case errors.Is(err, errManyCells):
		return nil, errManyColumns
	case err != nil:
		return nil, errHeader
	}
	return append([]string{}, cells...), nil
}

var (
	errHeader = problem.New(400, "invalid_columns", "The first line must be CSV of RFC 4180 with the names of the "+
		"columns.")
	errNoHeader = problem.New(400, "invalid_columns", "The body is empty; its first line must have the names of the "+
		"columns.")
)

// errCells refuses a row with more or fewer cells than columns.
func errCells(cells, columns int) error {
	return problem.Newf(400, "invalid_line", "The row has %d cells, and there are %d columns.", cells, columns)
}

// reason returns what a producer may read about an error of a row.
func reason(err error) string {
	var p *problem.Problem
	if !errors.As(err, &p) {
		p = problem.From(err)
	}
	return p.Detail
}
