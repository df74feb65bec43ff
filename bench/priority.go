package bench

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// A Mix is the frequency of each priority. The priority of a message follows from its sequence, so
// it is not stored.
type Mix struct {
	levels []level
	total  uint64
}

type level struct{ priority, weight int }

// maxLevels bounds a mix: the order check looks at all lower levels per delivery.
const maxLevels = 16

// ParseMix reads "0", or "0:90,1023:10" (priority:weight).
func ParseMix(s string) (Mix, error) {
	var m Mix
	for part := range strings.SplitSeq(s, ",") {
		p, w, weighted := strings.Cut(strings.TrimSpace(part), ":")
		l := level{weight: 1}
		var err error
		if l.priority, err = strconv.Atoi(p); err == nil && weighted {
			l.weight, err = strconv.Atoi(w)
		}
		if err != nil || l.priority < 0 || l.priority > 1023 || l.weight < 1 || l.weight > 1_000_000 {
			return Mix{}, fmt.Errorf("priority mix %q: want PRIORITY[:WEIGHT],... with priorities 0 to 1023", s)
		}
		if slices.ContainsFunc(m.levels, func(o level) bool { return o.priority == l.priority }) {
			return Mix{}, fmt.Errorf("priority mix %q names %d twice", s, l.priority)
		}
		m.levels = append(m.levels, l)
		m.total += uint64(l.weight)
	}
	if len(m.levels) > maxLevels {
		return Mix{}, fmt.Errorf("priority mix %q has more than %d priorities", s, maxLevels)
	}
	slices.SortFunc(m.levels, func(a, b level) int { return a.priority - b.priority })
	return m, nil
}

// Level returns the index of the priority of a message, lowest priority first.
func (m Mix) Level(seq uint64) int {
	if len(m.levels) == 1 {
		return 0
	}
	r := mix(seq^0x5bd1e995) % m.total
	for i, l := range m.levels {
		if r < uint64(l.weight) {
			return i
		}
		r -= uint64(l.weight)
	}
	return len(m.levels) - 1
}

// Priority returns the priority of a level.
func (m Mix) Priority(level int) int { return m.levels[level].priority }

// Len is the number of levels.
func (m Mix) Len() int { return len(m.levels) }
