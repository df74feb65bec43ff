package bench

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

// A Progress prints the state of a run: one line that is overwritten on a terminal, otherwise a
// line every ten seconds.
type Progress struct {
	out      io.Writer
	terminal bool
	width    int // of the line on the terminal
	last     time.Time
	title    string
}

// plainPeriod is how often a line is written where lines stay.
const plainPeriod = 10 * time.Second

// NewProgress writes to out.
func NewProgress(out io.Writer) *Progress {
	p := &Progress{out: out, last: time.Now()}
	if f, ok := out.(*os.File); ok {
		info, err := f.Stat()
		p.terminal = err == nil && info.Mode()&os.ModeCharDevice != 0
	}
	return p
}

// Title begins a part of the run.
func (p *Progress) Title(format string, args ...any) {
	p.clear()
	p.title = fmt.Sprintf(format, args...)
	if !p.terminal {
		fmt.Fprintln(p.out, p.title)
	}
}

// Show shows the live numbers.
func (p *Progress) Show(l Live) {
	left := fmt.Sprintf("%s left", l.Left.Round(time.Second))
	if !l.Warm {
		left = "warming up, " + left
	}
	if l.Draining {
		left = "waiting for the last deliveries"
	}
	line := fmt.Sprintf("%s %7.0f acked/s %7.0f delivered/s  p50 %s p99 %s ms  backlog %d  errors %d  %s",
		p.title, l.Acked, l.Delivered, millis(l.P50), millis(l.P99), l.Backlog, l.Errors, left)
	if p.terminal {
		fmt.Fprintf(p.out, "\r%-*s", p.width, line)
		p.width = len(line)
	} else if time.Since(p.last) >= plainPeriod {
		p.last = time.Now()
		fmt.Fprintln(p.out, line)
	}
}

func (p *Progress) clear() {
	if p.terminal && p.width > 0 {
		fmt.Fprintf(p.out, "\r%s\r", strings.Repeat(" ", p.width))
		p.width = 0
	}
}

// Done leaves the terminal clean.
func (p *Progress) Done() { p.clear() }

// millis shows milliseconds with three digits that matter.
func millis(ms float64) string {
	switch {
	case ms >= 100:
		return fmt.Sprintf("%.0f", ms)
	case ms >= 10:
		return fmt.Sprintf("%.1f", ms)
	default:
		return fmt.Sprintf("%.2f", ms)
	}
}
