//go:build unix

package chaos

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// promises are the violations that there can be, in the order of the table.
var promises = []string{"lost", "stored twice", "unexplained duplicates", "stuck", "corrupted", "phantoms", "attempts",
	"leases not kept", "rates exceeded", "out of order", "before their time", "pauses not kept", "counter mismatches",
	"wrong answers", "brokers that died by themselves", "leaks", "client deaths missing",
	"attacks missing", "publishes not served after the attack", "memory above its bound", "rig notes"}

// A Verdict is the result of one or more campaigns.
type Verdict struct {
	Redis   string
	Brokers int
	Seed    uint64
	Seconds float64        // of the whole campaign
	Faults  map[string]int // injected, by kind

	Acked, Refused, Unknown int64 // messages, by the answer to their producer
	UnknownStored           int64 // of the unknown ones
	BatchLines              int64 // lines of batches that were answered, of producers that live
	Removed                 int64 // stored messages whose retention was over
	Jobs, Delivered, Dead   int64 // of stored messages, at the end
	DeadAfterSuccess        int64 // the consumer answered with success, and the answer was lost
	Deliveries              int64 // arrivals, retries included

	Duplicates         int64          // arrivals after an accepted one
	DuplicatesByFaults int            // duplicates explained by a fault
	Explained          map[string]int // duplicates by reason
	Bound              int            // deliveries under way at faults that may repeat them
	SameAttempt        int64          // duplicates with the attempt number of the accepted one

	Deaths       map[string]int // of clients, by kind
	Unanswered   int64          // reports of pull workers that got no answer
	Recorded     int64          // of those, with an outcome in the store
	Abandoned    int64          // claims of a job that its pull worker neither ended nor gave back
	PlannedExits int64          // of broker processes, that the rig had caused

	MostInAWindow int64 // requests of the consumer with a rate
	Ordered       int64 // pairs of messages of a key whose order is known
	Pauses        int64 // that were checked
	Scheduled     int64 // deliveries of scheduled messages
	Journalled    int64 // messages that a journal took, in an answer 202
	LeftOut       int64 // jobs that stored messages do not have, by address or by filter
	Answered      int64 // exchanges whose response the producer has
	AnsweredAgain int64 // replies beyond the first one of an exchange
	Replayed      int64 // jobs of replays
	ReplayedAgain int64 // copies of replays beyond the first one of a job

	PostsHealthy, PostsAcked      int64         // while MySQL was healthy; of those, with success
	LongestGap, LongestGapHealthy time.Duration // without any success

	Attacks         map[string]int // of neighbours, by kind: what they held
	RefusedByAttack map[string]int // answers to ordinary publishes while neighbours attacked, by status and code
	Upgrade         Upgrade
	UnderAttack     int64         // ordinary publishes that were answered meanwhile
	P99UnderAttack  time.Duration // of those without a fault
	MostMemory      int           // of a broker, MiB

	AfterAttack, RefusedAfterAttack int64 // ordinary publishes that were answered from servedWithin after it on
	P99AfterAttack                  time.Duration

	Violations map[string]int // by promise; empty if every promise was kept
	Samples    []string       `json:",omitempty"`
	Dir        string         `json:",omitempty"` // kept, because something is to be seen there

	explained []string // each duplicate with its reason
}

// maxSamples bounds how many violations of a kind are listed.
const maxSamples = 200

func newVerdict(e *Evidence) *Verdict {
	v := &Verdict{Upgrade: e.Upgrade, Faults: map[string]int{}, Deaths: map[string]int{}, Attacks: map[string]int{},
		RefusedByAttack: map[string]int{}, Explained: map[string]int{}, Violations: map[string]int{}}
	for _, f := range e.Faults {
		v.Faults[f.Kind]++
	}
	return v
}

// broken counts a violation and, unless there are many, describes it.
func (v *Verdict) broken(promise, format string, args ...any) {
	v.Violations[promise]++
	if v.Violations[promise] <= maxSamples {
		v.Samples = append(v.Samples, promise+": "+fmt.Sprintf(format, args...))
	}
}

// OK reports whether every promise was kept.
func (v *Verdict) OK() bool { return len(v.Violations) == 0 }

// Injected is the number of faults.
func (v *Verdict) Injected() int { return sum(v.Faults) }

func sum(counts map[string]int) (n int) {
	for _, k := range counts {
		n += k
	}
	return n
}

// add sums up campaigns.
func (v *Verdict) add(o *Verdict) {
	v.Brokers = o.Brokers
	v.Seed = o.Seed
	v.Seconds += o.Seconds
	v.Upgrade.add(o.Upgrade)
	for _, pair := range []struct{ into, from map[string]int }{{v.Faults, o.Faults}, {v.Deaths, o.Deaths},
		{v.Attacks, o.Attacks}, {v.RefusedByAttack, o.RefusedByAttack}, {v.Explained, o.Explained},
		{v.Violations, o.Violations}} {
		for k, n := range pair.from {
			pair.into[k] += n
		}
	}
	for _, pair := range []struct{ into, from *int64 }{
		{&v.Acked, &o.Acked}, {&v.Refused, &o.Refused}, {&v.Unknown, &o.Unknown}, {&v.UnknownStored, &o.UnknownStored},
		{&v.BatchLines, &o.BatchLines}, {&v.Removed, &o.Removed}, {&v.Jobs, &o.Jobs},
		{&v.Delivered, &o.Delivered}, {&v.Dead, &o.Dead}, {&v.DeadAfterSuccess, &o.DeadAfterSuccess},
		{&v.Deliveries, &o.Deliveries},
		{&v.Duplicates, &o.Duplicates}, {&v.SameAttempt, &o.SameAttempt}, {&v.PostsHealthy, &o.PostsHealthy},
		{&v.PostsAcked, &o.PostsAcked},
		{&v.Unanswered, &o.Unanswered}, {&v.Recorded, &o.Recorded}, {&v.Abandoned, &o.Abandoned},
		{&v.PlannedExits, &o.PlannedExits}, {&v.Ordered, &o.Ordered}, {&v.Pauses, &o.Pauses}, {&v.Scheduled, &o.Scheduled},
		{&v.Journalled, &o.Journalled}, {&v.LeftOut, &o.LeftOut},
		{&v.Answered, &o.Answered}, {&v.AnsweredAgain, &o.AnsweredAgain}, {&v.Replayed, &o.Replayed},
		{&v.ReplayedAgain, &o.ReplayedAgain}, {&v.UnderAttack, &o.UnderAttack},
		{&v.AfterAttack, &o.AfterAttack}, {&v.RefusedAfterAttack, &o.RefusedAfterAttack},
	} {
		*pair.into += *pair.from
	}
	v.MostInAWindow = max(v.MostInAWindow, o.MostInAWindow)
	v.DuplicatesByFaults += o.DuplicatesByFaults
	v.Bound += o.Bound
	v.LongestGap = max(v.LongestGap, o.LongestGap)
	v.LongestGapHealthy = max(v.LongestGapHealthy, o.LongestGapHealthy)
	v.P99UnderAttack, v.P99AfterAttack = max(v.P99UnderAttack, o.P99UnderAttack), max(v.P99AfterAttack, o.P99AfterAttack)
	v.MostMemory = max(v.MostMemory, o.MostMemory)
	v.Samples = append(v.Samples, o.Samples...)
}

// countMore counts responses, replays and dead letters.
func countMore(count func(name string, n func(v *Verdict) int64)) {
	count("responses that the producer has", func(v *Verdict) int64 { return v.Answered })
	count("  of those, sent again", func(v *Verdict) int64 { return v.AnsweredAgain })
	count("jobs that replays delivered", func(v *Verdict) int64 { return v.Replayed })
	count("  of those, sent again", func(v *Verdict) int64 { return v.ReplayedAgain })
	count("jobs dead and listed", func(v *Verdict) int64 { return v.Dead })
}

// Print writes the verdict table of one or more campaigns, a column for each.
func Print(w io.Writer, all []*Verdict) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	row := func(name string, cell func(v *Verdict) string) {
		fmt.Fprint(t, name, "\t")
		for _, v := range all {
			fmt.Fprint(t, cell(v), "\t")
		}
		fmt.Fprintln(t)
	}
	count := func(name string, n func(v *Verdict) int64) {
		row(name, func(v *Verdict) string { return fmt.Sprint(n(v)) })
	}
	row("Redis", func(v *Verdict) string { return v.Redis })
	row("time", func(v *Verdict) string { return (time.Duration(v.Seconds) * time.Second).String() })
	count("faults injected", func(v *Verdict) int64 { return int64(v.Injected()) })
	for _, kind := range keysOf(all, func(v *Verdict) map[string]int { return v.Faults }) {
		count("  "+kind, func(v *Verdict) int64 { return int64(v.Faults[kind]) })
	}
	rowOfUpgrades(all, row)
	row("clients that died", func(v *Verdict) string { return fmt.Sprint(sum(v.Deaths)) })
	for _, kind := range keysOf(all, func(v *Verdict) map[string]int { return v.Deaths }) {
		count("  "+kind, func(v *Verdict) int64 { return int64(v.Deaths[kind]) })
	}
	count("messages acknowledged", func(v *Verdict) int64 { return v.Acked })
	count("  of those, by a journal", func(v *Verdict) int64 { return v.Journalled })
	count("messages refused", func(v *Verdict) int64 { return v.Refused })
	count("messages of unknown outcome", func(v *Verdict) int64 { return v.Unknown })
	count("  of those, stored", func(v *Verdict) int64 { return v.UnknownStored })
	count("batch lines answered", func(v *Verdict) int64 { return v.BatchLines })
	count("messages removed by retention", func(v *Verdict) int64 { return v.Removed })
	count("deliveries, retries included", func(v *Verdict) int64 { return v.Deliveries })
	count("  of scheduled messages", func(v *Verdict) int64 { return v.Scheduled })
	count("jobs delivered", func(v *Verdict) int64 { return v.Delivered })
	count("jobs that filters and addresses left out", func(v *Verdict) int64 { return v.LeftOut })
	countMore(count)
	count("jobs that a pull worker claimed and left", func(v *Verdict) int64 { return v.Abandoned })
	count("reports of pull workers without an answer", func(v *Verdict) int64 { return v.Unanswered })
	count("  of those, stored", func(v *Verdict) int64 { return v.Recorded })
	count("duplicates", func(v *Verdict) int64 { return v.Duplicates })
	for _, reason := range keysOf(all, func(v *Verdict) map[string]int { return v.Explained }) {
		count("  "+reason, func(v *Verdict) int64 { return int64(v.Explained[reason]) })
	}
	count("  all that faults explain", func(v *Verdict) int64 { return int64(v.DuplicatesByFaults) })
	count("  bound: under way at faults", func(v *Verdict) int64 { return int64(v.Bound) })
	count("most requests in a window of the rate", func(v *Verdict) int64 { return v.MostInAWindow })
	count("pairs of messages in a known order", func(v *Verdict) int64 { return v.Ordered })
	count("pauses checked", func(v *Verdict) int64 { return v.Pauses })
	count("brokers ended by the rig", func(v *Verdict) int64 { return v.PlannedExits })
	row("posts with 2xx while MySQL was healthy", func(v *Verdict) string {
		return fmt.Sprintf("%.3f %%", 100*float64(v.PostsAcked)/float64(max(v.PostsHealthy, 1)))
	})
	row("longest time without a 2xx", func(v *Verdict) string { return inMilliseconds(v.LongestGap) })
	row("  while MySQL was healthy", func(v *Verdict) string { return inMilliseconds(v.LongestGapHealthy) })
	rowsOfAttacks(all, row, count)
	for _, p := range promises {
		count(strings.ToUpper(p[:1])+p[1:], func(v *Verdict) int64 { return int64(v.Violations[p]) })
	}
	row("VERDICT", (*Verdict).word)
	return t.Flush()
}

func inMilliseconds(d time.Duration) string { return d.Round(time.Millisecond).String() }

func (v *Verdict) word() string {
	if v.OK() {
		return "kept"
	}
	return "BROKEN"
}

// keysOf are the keys of a map of the verdicts, in order.
func keysOf(all []*Verdict, counts func(*Verdict) map[string]int) (keys []string) {
	for _, v := range all {
		for k := range counts(v) {
			if !slices.Contains(keys, k) {
				keys = append(keys, k)
			}
		}
	}
	slices.Sort(keys)
	return keys
}

// write leaves the verdict and the faults in the folder of the campaign.
func (v *Verdict) write(dir string, e *Evidence) error {
	for name, value := range map[string]any{"verdict.json": v, "faults.json": e.Faults} {
		if err := writeJSON(filepath.Join(dir, name), value); err != nil {
			return err
		}
	}
	for name, lines := range map[string][]string{"violations.txt": v.Samples, "duplicates.txt": v.explained} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(strings.Join(lines, "\n")+"\n"), 0o644); err != nil {
			return err
		}
	}
	return nil
}

func writeJSON(path string, value any) error {
	b, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(b, '\n'), 0o644)
}
