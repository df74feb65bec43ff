package preflight

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
)

// A State is what a line says. The names are those of the JSON.
type State string

// The states, the best first.
const (
	OK          State = "ok"
	Note        State = "note"        // nothing to mend, but good to know
	Mend        State = "mend"        // to be mended
	Unreachable State = "unreachable" // the part could not be asked
)

// The exit codes of the command.
const (
	CodeOK          = 0
	CodeMend        = 1
	CodeUnreachable = 3
)

// A Line is one finding.
type Line struct {
	Check string // what was looked at, such as mysql.flush: a fixed name
	State State
	Text  string // what there is; for Mend and Unreachable what to do, too
	Stops bool   // a broker does not start with it
}

// A Report is what was found, in a fixed order.
type Report struct {
	OK    bool // nothing is to be mended, and everything was asked
	Code  int  // the exit code
	Lines []Line
}

func (r *Report) add(check string, state State, format string, args ...any) *Line {
	text := strings.Join(strings.Fields(fmt.Sprintf(format, args...)), " ") // one line, whatever an error has
	r.Lines = append(r.Lines, Line{Check: check, State: state, Text: text})
	return &r.Lines[len(r.Lines)-1]
}

// stops adds a line with which a broker does not start.
func (r *Report) stops(check string, state State, format string, args ...any) {
	r.add(check, state, format, args...).Stops = true
}

// settle sets the code. With starting only the lines count with which a broker does not start.
func (r *Report) settle(starting bool) {
	r.Code = CodeOK
	for _, l := range r.Lines {
		switch {
		case starting && !l.Stops:
		case l.State == Unreachable:
			r.Code = CodeUnreachable
		case l.State == Mend && r.Code == CodeOK:
			r.Code = CodeMend
		}
	}
	r.OK = r.Code == CodeOK
}

// Print writes a line for each finding.
func (r Report) Print(out io.Writer) error {
	for _, l := range r.Lines {
		if _, err := fmt.Fprintf(out, "%-11s  %-18s  %s\n", l.State, l.Check, l.Text); err != nil {
			return err
		}
	}
	return nil
}

// JSON writes the report as one object.
func (r Report) JSON(out io.Writer) error {
	e := json.NewEncoder(out)
	e.SetEscapeHTML(false)
	return e.Encode(r)
}
