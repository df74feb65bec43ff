package rehearse

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"
)

// A Verdict is the result of a rehearsal. Times are in seconds.
type Verdict struct {
	Scenario, URL string
	Lost          int            // accepted, and a consumer has no delivery, no dead letter and no open job of it
	Unknown       int            // without an answer that says what became of them
	Refused       map[string]int // by status and code: lost for a producer that does not repeat
	Balanced      bool           // the books of the broker: see GET /channel/{channel}/reconcile
	Well          bool
	WellAfter     float64 // from --mend on
	Broken        float64 // how long it was taken away
	Phases        []PhaseResult
	Consumers     []ConsumerResult
	Foreign       int // deliveries of messages that were never posted
}

// A PhaseResult is what producers saw in a part of the rehearsal.
type PhaseResult struct {
	Phase                              string
	Posted, Accepted, Refused, Unknown int
	SlowestAccepted                    float64 // until an answer said so, repeats counted
}

// A ConsumerResult is what a consumer saw.
type ConsumerResult struct {
	Consumer                                        string
	Delivered, Repeated, DeadLetters, Waiting, Lost int
	LongestSilence                                  float64 // between two deliveries
	WellAfter                                       float64 // when the last late delivery came, from --mend on
}

// OK reports whether the promises were kept.
func (v *Verdict) OK() bool { return v.Lost == 0 && v.Foreign == 0 && v.Balanced }

var (
	phaseNames    = [phases]string{"calm", "outage", "after"}
	consumerNames = [consumers]string{"push", "pull"}
)

// verdict adds up the books and asks the broker for its own.
func (r *rehearsal) verdict(ctx context.Context, well bool) (*Verdict, error) {
	b := r.books
	final := b.state(r.used)
	var dead, waiting [consumers]map[string]bool
	for _, k := range r.used {
		var err error
		if dead[k], waiting[k], err = r.jobs(ctx, consumerNames[k]); err != nil {
			return nil, fmt.Errorf("read the jobs: %w", err)
		}
	}
	balanced, err := r.balanced(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the books: %w", err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	v := &Verdict{Scenario: r.c.Scenario, URL: r.c.URL, Refused: maps.Clone(b.refusals), Balanced: balanced, Well: well,
		WellAfter: max(0, final.trouble-r.mended).Seconds(), Broken: (r.mended - r.broken).Seconds(), Foreign: b.foreign}
	v.Phases = b.phases()
	for _, p := range v.Phases {
		v.Unknown += p.Unknown
	}
	for _, k := range r.used {
		x := b.consumer(k, dead[k], waiting[k])
		x.WellAfter = max(0, b.overdue[k]-r.mended).Seconds()
		v.Lost += x.Lost
		v.Consumers = append(v.Consumers, x)
	}
	return v, nil
}

func (b *books) phases() []PhaseResult {
	all := make([]PhaseResult, phases)
	for i := range all {
		all[i].Phase = phaseNames[i]
	}
	for _, r := range b.records {
		p := &all[r.phase]
		p.Posted++
		switch r.fate {
		case accepted:
			p.Accepted++
			p.SlowestAccepted = max(p.SlowestAccepted, (r.told - r.posted).Seconds())
		case refused:
			p.Refused++
		case unknown:
			p.Unknown++
		}
	}
	return all
}

func (b *books) consumer(k int, dead, waiting map[string]bool) ConsumerResult {
	x := ConsumerResult{Consumer: consumerNames[k], Repeated: b.repeated[k], DeadLetters: len(dead),
		LongestSilence: b.longest[k].Seconds()}
	for n, r := range b.records {
		switch {
		case r.arrived[k] != 0:
			x.Delivered++
		case waiting[b.id(n)]:
			x.Waiting++
		case r.fate == accepted && !dead[b.id(n)]:
			x.Lost++
		}
	}
	return x
}

// balanced asks the broker whether its books of the channel balance.
func (r *rehearsal) balanced(ctx context.Context) (bool, error) {
	var books struct{ Result []struct{ Balanced bool } }
	if err := r.manager.Read(ctx, "/channel/"+r.name+"/reconcile", nil, &books); err != nil {
		return false, err
	}
	return !slices.ContainsFunc(books.Result, func(x struct{ Balanced bool }) bool { return !x.Balanced }), nil
}

// Print writes the verdict for people: what was lost and how long it took, first.
func (v *Verdict) Print(out io.Writer) {
	fmt.Fprintf(out, "\n%s at %s: %s\n\n", v.Scenario, v.URL, v.sentence())
	fmt.Fprintf(out, "%-8s %8s %9s %8s %8s %15s\n", "posts", "posted", "accepted", "refused", "unknown", "slowest answer")
	for _, p := range v.Phases {
		fmt.Fprintf(out, "%-8s %8d %9d %8d %8d %15s\n", p.Phase, p.Posted, p.Accepted, p.Refused, p.Unknown,
			seconds(p.SlowestAccepted))
	}
	fmt.Fprintf(out, "\n%-8s %9s %8s %12s %7s %6s %15s %10s\n", "consumer", "delivered", "repeated", "dead letters",
		"waiting", "lost", "longest silence", "well again")
	for _, x := range v.Consumers {
		fmt.Fprintf(out, "%-8s %9d %8d %12d %7d %6d %15s %10s\n", x.Consumer, x.Delivered, x.Repeated, x.DeadLetters,
			x.Waiting, x.Lost, seconds(x.LongestSilence), "+"+seconds(x.WellAfter))
	}
	fmt.Fprintln(out)
	for _, note := range v.notes() {
		fmt.Fprintln(out, note)
	}
}

func (v *Verdict) sentence() string {
	first := "nothing was lost"
	switch {
	case v.Lost > 0:
		first = fmt.Sprintf("%d deliveries of accepted messages ARE LOST", v.Lost)
	case v.Foreign > 0:
		first = fmt.Sprintf("%d deliveries of messages that were never posted", v.Foreign)
	case !v.Balanced:
		first = "the books of the broker DO NOT BALANCE"
	}
	if !v.Well {
		return first + ", and all was NOT well again in time."
	}
	return fmt.Sprintf("%s, and all was well %s after the end of %s without.", first, seconds(v.WellAfter),
		seconds(v.Broken))
}

// notes say what follows.
func (v *Verdict) notes() (all []string) {
	if len(v.Refused) > 0 {
		all = append(all, "Refused: "+counts(v.Refused)+". A producer that does not repeat its posts would have lost these.")
	}
	if v.Unknown > 0 {
		all = append(all, fmt.Sprintf("%d posts never had an answer: their messages may be stored or not.", v.Unknown))
	}
	if len(v.Refused) == 0 && v.Unknown == 0 && v.Well && v.WellAfter == 0 && v.quiet() {
		all = append(all, "The outage did not show: nothing was refused, and no delivery was late. Either the installation "+
			"bears it, or --break does not stop what the broker uses.")
	}
	return all
}

// quiet reports whether no consumer went without deliveries for as long as most of the outage.
func (v *Verdict) quiet() bool {
	return !slices.ContainsFunc(v.Consumers, func(x ConsumerResult) bool { return x.LongestSilence > v.Broken/2 })
}

// counts is a map of counts as text.
func counts(m map[string]int) string {
	var all []string
	for _, key := range slices.Sorted(maps.Keys(m)) {
		all = append(all, fmt.Sprintf("%d with %s", m[key], key))
	}
	return strings.Join(all, ", ")
}

func seconds(s float64) string {
	return time.Duration(s * float64(time.Second)).Round(10 * time.Millisecond).String()
}

// Write writes the verdict as JSON to a file.
func (v *Verdict) Write(file string) error {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(text, '\n'), 0o644)
}
