package importer

import (
	"fmt"
	"io"
	"text/tabwriter"
)

// mostLines bounds the refusals and notes that a run prints. All of them are counted.
const mostLines = 1000

// The kinds of rows that are counted, as the report names them.
const (
	producers     = "producers"
	channels      = "channels"
	consumers     = "consumers"
	messages      = "messages"
	jobsOpen      = "open jobs"
	jobsDead      = "dead jobs"
	jobsDelivered = "delivered jobs"
	schedules     = "scheduled messages"
)

var kinds = []string{producers, channels, consumers, messages, jobsOpen, jobsDead, jobsDelivered, schedules}

// A Count is the rows of a kind: those of the old database, and those of them that this broker has.
type Count struct{ Old, Here int64 }

// A Report is what a pass has found.
type Report struct {
	Counts   map[string]Count
	Imported int64 // messages that were not here before
	Ended    int64 // jobs of earlier passes whose end was recorded, or that were redriven there
	Refused  int64 // rows that cannot be imported
	Left     int64 // messages and schedules that wait for the last run
	Skipped  int64 // messages without open or dead jobs, which were not asked for
}

func newReport() *Report { return &Report{Counts: map[string]Count{}} }

func (r *Report) count(kind string, old, here int64) {
	c := r.Counts[kind]
	r.Counts[kind] = Count{c.Old + old, c.Here + here}
}

// Complete reports whether this broker has everything.
func (r *Report) Complete() bool {
	for _, c := range r.Counts {
		if c.Old != c.Here {
			return false
		}
	}
	return r.Refused == 0
}

// print prints the counts of both sides.
func (r *Report) print(out io.Writer, here string) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "\told\t%s\tdifference\t\n", here)
	for _, kind := range kinds {
		if c, ok := r.Counts[kind]; ok {
			fmt.Fprintf(w, "%s\t%d\t%d\t%d\t\n", kind, c.Old, c.Here, c.Old-c.Here)
		}
	}
	_ = w.Flush()
	if r.Skipped > 0 {
		fmt.Fprintf(out, "%d messages have delivered jobs only, or none: they were not asked for\n", r.Skipped)
	}
	if r.Left > 0 {
		fmt.Fprintf(out, "%d messages wait for the run after the old broker was stopped\n", r.Left)
	}
	if r.Refused > 0 {
		fmt.Fprintf(out, "%d rows cannot be imported\n", r.Refused)
	}
}

// A teller prints what is to be told of single rows: each text once, and not too many.
type teller struct {
	out  io.Writer
	told map[string]bool
	more bool // some were not printed, which is said
}

func (t *teller) tell(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	switch {
	case t.told[text]:
		return
	case len(t.told) < mostLines:
		t.told[text] = true
		fmt.Fprintln(t.out, text)
	case !t.more:
		t.more = true
		fmt.Fprintf(t.out, "... after %d such lines no more are printed\n", mostLines)
	}
}

// A refusal says why a row cannot be imported.
type refusal struct{ reason string }

func (r *refusal) Error() string { return r.reason }

func refuse(format string, args ...any) *refusal { return &refusal{fmt.Sprintf(format, args...)} }
