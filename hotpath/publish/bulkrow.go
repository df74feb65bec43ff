package publish

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/problem"
)

// A Row is the message of a row, or its schedule.
type Row struct {
	Message *durable.Message
	Later   *durable.Scheduled
}

// Longest returns how many bytes a row may have: about those of a payload of the largest size in
// base64 or with escapes, and the other members.
func (p *Publisher) Longest() int { return 2*p.maxBody + 16<<10 }

// Line returns what a row becomes that is a line of a batch.
func (w *Drafter) Line(ctx context.Context, text []byte) (Row, error) {
	d := w.draft()
	return w.row(ctx, d, d.line(text))
}

// Record returns what a row becomes that has a cell for each column. An empty cell is an absent
// member, but an empty payload.
func (w *Drafter) Record(ctx context.Context, columns, cells []string) (Row, error) {
	d := w.draft()
	for i, name := range columns {
		if err := d.Set(name, cells[i]); err != nil {
			return w.row(ctx, d, err)
		}
	}
	if !d.hasPayload && !slices.ContainsFunc(columns, isPayload) {
		return w.row(ctx, d, errNoPayload)
	}
	return w.row(ctx, d, nil)
}

// row returns what a draft becomes whose properties are set, unless err is not nil.
func (w *Drafter) row(ctx context.Context, d *Draft, err error) (Row, error) {
	defer d.free()
	if err == nil {
		err = w.complete(ctx, d)
	}
	return Row{d.msg, d.later}, err
}

var errNoPayload = problem.New(400, "invalid_columns", "The columns must include Payload or PayloadBase64.")

// headerColumn begins the name of a column with a metadata header.
const headerColumn = "Header:"

func isPayload(column string) bool { return column == "Payload" || column == "PayloadBase64" }

// CheckColumns refuses columns that are no members of a line.
func CheckColumns(columns []string) error {
	if err := CheckNames(columns); err != nil {
		return err
	}
	for _, name := range columns {
		if header, ok := strings.CutPrefix(name, headerColumn); ok && header != "" {
			continue
		}
		if i, err := member(name); err != nil || properties[i].parse == nil {
			return noColumn(name)
		}
	}
	if !slices.ContainsFunc(columns, isPayload) {
		return errNoPayload
	}
	return nil
}

// CheckNames refuses column names that a template could not tell apart.
func CheckNames(columns []string) error {
	seen := map[string]bool{}
	for i, name := range columns {
		switch {
		case name == "":
			return problem.Newf(400, "invalid_columns", "Column %d has no name.", i+1)
		case !utf8.ValidString(name):
			return problem.Newf(400, "invalid_columns", "The name of column %d is not UTF-8.", i+1)
		case seen[name]:
			return problem.Newf(400, "invalid_columns", "The column %s occurs twice.", quoted(name))
		}
		seen[name] = true
	}
	return nil
}

// quoted returns a name of the client for a refusal, in bounds.
func quoted(name string) string {
	return fmt.Sprintf("%q", strings.ToValidUTF8(name[:min(len(name), longestQuote)], ""))
}

var errCellText = problem.New(400, "invalid_line", "A cell of the row is not UTF-8.")

// CheckConstant refuses members that are the same in each row and never right. Those with an empty
// text are not checked. The name of a header is checked as well.
func CheckConstant(names, texts []string) error {
	var d Draft
	for i, name := range names {
		if err := d.Set(name, texts[i]); err != nil {
			return err
		}
		if header, ok := strings.CutPrefix(name, headerColumn); ok {
			if err := checkLineHeaders(map[string]string{header: ""}, ""); err != nil {
				return err
			}
		}
	}
	return nil
}
