package ctl

import (
	"bufio"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// What listen prints.
const (
	interactive = "interactive" // attempts with numbers, and commands about them
	compact     = "compact"     // a line for each attempt
	quiet       = "quiet"       // failures
)

// Bounds of what can be sent again: the newest jobs, at least one.
const (
	mostKept      = 200
	mostKeptBytes = 64 << 20
)

// Kept are the newest jobs, numbered from 1.
type kept struct {
	mu    sync.Mutex
	jobs  []copied
	last  int // number of the newest
	bytes int
}

// add keeps a job and returns its number.
func (k *kept) add(j copied) int {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.jobs = append(k.jobs, j)
	k.bytes += len(j.payload)
	for len(k.jobs) > 1 && (len(k.jobs) > mostKept || k.bytes > mostKeptBytes) {
		k.bytes -= len(k.jobs[0].payload)
		k.jobs = slices.Delete(k.jobs, 0, 1)
	}
	k.last++
	return k.last
}

// get returns a job by its number; 0 is the newest.
func (k *kept) get(n int) (copied, int, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if n == 0 {
		n = k.last
	}
	at := len(k.jobs) - 1 - (k.last - n)
	if at < 0 || at >= len(k.jobs) {
		return copied{}, n, false
	}
	return k.jobs[at], n, true
}

const commandsOfListen = "r: send the last one again; r 7: number 7; d 7: show it; q: end"

// obey reads commands until there are no more, or until one ends everything.
func (l *listening) obey(ctx context.Context, end func()) {
	lines := bufio.NewScanner(l.s.Stdin)
	for lines.Scan() {
		name, text, _ := strings.Cut(strings.TrimSpace(lines.Text()), " ")
		n, err := 0, error(nil)
		if text != "" {
			if n, err = strconv.Atoi(strings.TrimSpace(text)); err == nil && n < 1 {
				err = strconv.ErrRange
			}
		}
		j, n, found := l.kept.get(n)
		switch {
		case name == "":
			continue
		case name == "q" && text == "":
			end()
			return
		case name != "r" && name != "d" || err != nil:
			err = l.s.done(nil, commandsOfListen)
		case !found:
			err = l.s.done(nil, "there is no number %d", n)
		case name == "d":
			err = l.show(j)
		default:
			a := l.to.post(ctx, j)
			a.number, a.again = n, true
			err = l.say(a)
		}
		if err != nil {
			return // nobody reads
		}
	}
}

// show prints a job.
func (l *listening) show(j copied) error {
	text := []string{fmt.Sprintf("%s %s, attempt %d, priority %d", j.contentType, j.message, j.attempt, j.priority)}
	for name, value := range j.headers {
		text = append(text, name+": "+value)
	}
	slices.Sort(text[1:])
	const most = 4 << 10
	payload := j.payload
	if len(payload) > most {
		payload = payload[:most]
		text = append(text, fmt.Sprintf("the first %d of %d bytes:", most, len(j.payload)))
	}
	for _, line := range append(text, strings.Split(strings.ToValidUTF8(string(payload), "?"), "\n")...) {
		if err := l.s.done(nil, "  %s", line); err != nil {
			return err
		}
	}
	return nil
}
