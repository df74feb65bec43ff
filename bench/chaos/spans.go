//go:build unix

package chaos

import (
	"slices"
	"time"
)

// A span is from one time to another.
type span struct{ from, to time.Time }

type spans []span

func (c *checker) windows(which func(*Fault) bool) (out spans) {
	for i := range c.e.Faults {
		if f := &c.e.Faults[i]; which(f) {
			out = append(out, span{f.Start, f.End.Add(recovery)})
		}
	}
	return out
}

func (s spans) covers(from, to time.Time) bool {
	return slices.ContainsFunc(s, func(w span) bool { return !w.from.After(to) && !w.to.Before(from) })
}
