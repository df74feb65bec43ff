package history

import (
	"slices"
	"time"
)

// A Step is a length of slots, with the time for which slots of that length are kept.
type Step struct {
	Name   string // in requests and answers
	Length time.Duration
	Keep   time.Duration
}

// Steps are all steps, the finest first.
var Steps = [...]Step{
	{"10s", 10 * time.Second, time.Hour},
	{"1m", time.Minute, 48 * time.Hour},
	{"10m", 10 * time.Minute, 30 * 24 * time.Hour},
}

// finest is the length of the slots that the others consist of.
const finest = 10 * time.Second

// MaxSlots is the most slots of one answer. All slots of a step that are kept are fewer.
const MaxSlots = 5000

// marksKept is how long marks are kept, maxMarks how many of them, and marksShown those of one answer.
const (
	marksKept  = 30 * 24 * time.Hour
	maxMarks   = 10_000
	marksShown = 1000
)

// StepNamed returns a step by its name.
func StepNamed(name string) (Step, bool) {
	for _, s := range Steps {
		if s.Name == name {
			return s, true
		}
	}
	return Step{}, false
}

// StepIn returns the longest step of which a slot consists.
func StepIn(slot time.Duration) Step {
	for _, s := range slices.Backward(Steps[:]) {
		if slot%s.Length == 0 {
			return s
		}
	}
	return Steps[0]
}

// StepFor returns the finest step that still has the begin of a range, and has few enough slots in it.
func StepFor(fromMs, toMs, nowMs int64) Step {
	for _, s := range Steps {
		if nowMs-fromMs <= s.Keep.Milliseconds() && s.Slots(fromMs, toMs) <= MaxSlots {
			return s
		}
	}
	return Steps[len(Steps)-1]
}

func (s Step) seconds() int { return int(s.Length.Seconds()) }

// Begin returns the begin of the slot of a time.
func (s Step) Begin(ms int64) int64 { return begin(ms, s.Length.Milliseconds()) }

// Slots returns the number of slots of a range, the first and the last of which it may have in part.
func (s Step) Slots(fromMs, toMs int64) int64 {
	length := s.Length.Milliseconds()
	return (toMs - s.Begin(fromMs) + length - 1) / length
}

// oldest returns the begin of the oldest slot that is kept.
func (s Step) oldest(nowMs int64) int64 { return s.Begin(nowMs - s.Keep.Milliseconds()) }

// begin rounds down, also before 1970.
func begin(ms, length int64) int64 { return ms - ((ms%length)+length)%length }
