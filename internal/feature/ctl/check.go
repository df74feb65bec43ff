package ctl

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	penstock "github.com/penstock-broker/penstock/clients/go"
)

// The levels of monitoring systems, which are the exit codes of check.
const (
	levelOK = iota
	levelWarning
	levelCritical
	levelUnknown
)

var levels = [...]string{"OK", "WARNING", "CRITICAL", "UNKNOWN"}

// A report is what check finds.
type report struct {
	Status                            string
	Level                             int
	Findings                          []string // the worst first
	Consumers, Queued, InFlight, Dead int
	OldestSeconds                     int64

	bounds checkBounds
	now    time.Time // of the broker
	worst  [4][]string
}

// checkBounds are what check compares with.
type checkBounds struct {
	age  time.Duration // of the oldest job; 0: each consumer has its own, maxAge
	dead int           // dead letters of a consumer; below 0: any number is well
}

func (s *session) check() *cobra.Command {
	b := checkBounds{}
	c := leaf{use: "check", about: "say in one line whether all is well, for monitoring",
		long: "The exit code is that of monitoring systems: 0 OK, 1 WARNING (a consumer is dead or gone, dead letters\n" +
			"above --dead, Redis cannot be reached), 2 CRITICAL (the broker takes no messages, or a job is older than\n" +
			"--age, or than maxAge of its consumer), 3 UNKNOWN (no broker was reached, or it refused the question).",
		examples: "broker ctl check\nbroker ctl check --age 15m --dead 0\nbroker ctl --json check",
		run: func(c *cobra.Command, _ []string) error {
			r := s.examine(c, b)
			r.settle()
			var err error
			if s.json {
				err = s.line(r)
			} else {
				_, err = fmt.Fprintln(s.Stdout, plain(r.line()))
			}
			if err == nil && r.Level != levelOK {
				err = verdict(r.Level)
			}
			return err
		}}.command()
	c.Flags().DurationVar(&b.age, "age", 0, "`AGE` of the oldest waiting job that is critical, for all consumers")
	c.Flags().IntVar(&b.dead, "dead", -1, "`NUMBER` of dead letters of a consumer above which it is a warning")
	return c
}

// note adds a finding.
func (r *report) note(level int, format string, args ...any) {
	r.worst[level] = append(r.worst[level], fmt.Sprintf(format, args...))
}

// settle says what the findings come to. What is not known outranks what is well and what is a warning alone.
func (r *report) settle() {
	for _, level := range []int{levelCritical, levelUnknown, levelWarning} {
		if len(r.worst[level]) > 0 && r.Level == levelOK {
			r.Level = level
		}
		r.Findings = append(r.Findings, r.worst[level]...)
	}
	r.Status = levels[r.Level]
}

// shownFindings bounds the findings in the line.
const shownFindings = 5

// line is the report in the form of monitoring systems.
func (r *report) line() string {
	said := fmt.Sprintf("%d consumers, %d jobs wait, %d are in flight, %d dead letters", r.Consumers, r.Queued,
		r.InFlight, r.Dead)
	if n := len(r.Findings); n > 0 {
		said = strings.Join(r.Findings[:min(n, shownFindings)], "; ")
		if n > shownFindings {
			said += fmt.Sprintf("; and %d more", n-shownFindings)
		}
	}
	return fmt.Sprintf("PENSTOCK %s - %s | consumers=%d queued=%d inflight=%d dead=%d oldest=%ds", r.Status,
		strings.ReplaceAll(said, "|", "/"), r.Consumers, r.Queued, r.InFlight, r.Dead, r.OldestSeconds)
}

// examine asks the broker.
func (s *session) examine(c *cobra.Command, b checkBounds) *report {
	r := &report{bounds: b, Findings: []string{}}
	m, err := s.manager()
	if err != nil {
		r.note(levelUnknown, "%s", said(err))
		return r
	}
	_, header, text, err := m.Call(c.Context(), http.MethodGet, "/readyz", nil, nil)
	var refused *penstock.Error
	switch {
	case errors.As(err, &refused) && refused.Code != "":
		r.note(levelCritical, "the broker is not ready: %s", said(err))
		return r
	case err != nil:
		r.note(levelUnknown, "%s", said(err))
		return r
	}
	if r.now, err = http.ParseTime(header.Get("Date")); err != nil {
		r.now = time.Now()
	}
	var health struct{ Queue, Warning string }
	_ = json.Unmarshal(text, &health) // what is absent is well
	if health.Queue == "unreachable" {
		r.note(levelWarning, "Redis cannot be reached")
	}
	if health.Warning != "" {
		r.note(levelWarning, "%s", health.Warning)
	}
	err = m.Each(c.Context(), "/consumers", nil, 0, func(raw json.RawMessage) error {
		var k listedConsumer
		if err := json.Unmarshal(raw, &k); err != nil {
			return err
		}
		r.add(&k)
		return nil
	})
	if err != nil {
		r.note(levelUnknown, "the consumers cannot be listed: %s", said(err))
	}
	return r
}

// add counts a consumer, and notes what is wrong with it.
func (r *report) add(k *listedConsumer) {
	name := k.ChannelID + "/" + k.ID
	r.Consumers++
	r.Queued, r.InFlight, r.Dead = r.Queued+known(k.Queued), r.InFlight+known(k.InFlight), r.Dead+known(k.DeadLetters)
	if k.State == "DEAD" || k.State == "GONE" {
		r.note(levelWarning, "%s is %s", name, k.State)
	}
	if r.bounds.dead >= 0 && k.DeadLetters != nil && *k.DeadLetters > r.bounds.dead {
		r.note(levelWarning, "%s has %d dead letters", name, *k.DeadLetters)
	}
	if k.OldestQueuedAt == nil {
		return
	}
	age := r.now.Sub(*k.OldestQueuedAt)
	r.OldestSeconds = max(r.OldestSeconds, int64(age.Seconds()))
	most := r.bounds.age
	if own, err := time.ParseDuration(k.Policy.MaxAge); most == 0 && err == nil {
		most = own
	}
	if most > 0 && age > most {
		r.note(levelCritical, "the oldest job of %s waits for %s, longer than %s", name, age.Truncate(time.Second), most)
	}
}

// known is a count, 0 while the broker cannot count.
func known(n *int) int {
	if n == nil {
		return 0
	}
	return *n
}
