package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"
	"time"
)

// A Search is the course of a find-max.
type Search struct {
	P99Ms float64 // the bound
	Best  float64 // messages per second; 0: no rate kept the bound
	Steps []SearchStep
}

// A SearchStep is one rate that was tried.
type SearchStep struct {
	Rate, AckedRate, P99, DeliveryP99 float64
	Backlog                           int64
	Kept                              bool
	Why                               string `json:",omitempty"` // it was not kept
}

// searchFor finds the largest rate that try accepts, to the given precision, with at most steps
// calls. It doubles the rate until the first failure, then halves the interval.
func searchFor(start, precision float64, steps int, try func(rate float64) (bool, error)) (best float64, err error) {
	low, high := 0.0, 0.0
	for rate := start; steps > 0; steps-- {
		kept, err := try(rate)
		if err != nil {
			return low, err
		}
		if kept {
			low = rate
		} else {
			high = rate
		}
		switch {
		case high == 0:
			rate = low * 2
		case low == 0 && high < 2: // not even one per second
			return 0, nil
		case low == 0:
			rate = high / 4
		case high/low <= 1+precision:
			return low, nil
		default:
			rate = (low + high) / 2
		}
		if rate > maxSearchRate {
			return low, nil
		}
	}
	return low, nil
}

const maxSearchRate = 5_000_000

// violation returns the reason why a result does not keep the bound, empty if it does.
func violation(c *Config, x *Result, bound time.Duration) string {
	second := c.Rate * float64(c.consumersPerChannel()) // deliveries owed by one second of load
	switch {
	case !x.Ledger.OK():
		return "promise broken: " + x.Ledger.Problems()
	case !x.Ledger.Proven():
		return fmt.Sprintf("%d deliveries pending at the end", x.Ledger.Pending)
	case x.ErrorCount() > 0:
		return fmt.Sprintf("%d errors", x.ErrorCount())
	case x.Unsent > 0:
		return fmt.Sprintf("%d messages never sent", x.Unsent)
	case x.Ack.P99 > bound.Seconds()*1000:
		return "p99 too high"
	case x.AckedRate < 0.95*c.Rate:
		return "does not reach the rate"
	case float64(x.BacklogAtEnd) > max(second, 100):
		return "deliveries fall behind"
	default:
		return ""
	}
}

func findMaxCommand(ctx context.Context, args []string, out, progress io.Writer) (int, error) {
	var c Config
	var o output
	f := flags("find-max")
	c.register(f)
	o.register(f)
	bound := f.Duration("p99", 10*time.Millisecond, "the bound on the ack latency from intended time")
	start := f.Float64("start", 1000, "first rate to try, messages per second")
	steps := f.Int("max-steps", 16, "rates to try at most")
	precision := f.Float64("precision", 0.05, "stop when the answer is known to this fraction")
	f.Lookup("duration").Usage = "of each step"
	if err := parse(f, args, out); err != nil {
		return ExitUsage, err
	}
	if err := c.validate(); err != nil {
		return ExitUsage, err
	}
	if c.Messages > 0 || c.Rate > 0 || *bound <= 0 || !(*start >= 1 && *start <= maxSearchRate) || *steps < 1 ||
		*steps > 200 || !(*precision >= 0.001 && *precision <= 1) {
		return ExitUsage, errors.New("find-max needs --p99, --start from 1, --max-steps 1 to 200, --precision 0.001 to 1, " +
			"and neither --rate nor --messages")
	}
	r, err := search(ctx, &c, *bound, *start, *precision, *steps, progress)
	if r == nil || len(r.Search.Steps) == 0 {
		return ExitCannotStart, err
	}
	printSearch(out, r.Search)
	err = errors.Join(err, o.write(r))
	if r.Search.Best == 0 {
		return ExitUnmet, err
	}
	return ExitOK, err
}

func search(ctx context.Context, c *Config, bound time.Duration, start, precision float64, steps int,
	progress io.Writer) (r *Report, err error) {
	b, err := OpenBroker(ctx, c)
	if err != nil {
		return nil, err
	}
	defer func() {
		b.remove(ctx, c, progress)
		err = errors.Join(err, b.Close())
	}()
	r = newReport(ctx, "find-max", c, b)
	r.Search = &Search{P99Ms: bound.Seconds() * 1000}
	p := NewProgress(progress)
	defer p.Done()
	r.Search.Best, err = searchFor(start, precision, steps, func(rate float64) (bool, error) {
		if ctx.Err() != nil {
			return false, context.Cause(ctx)
		}
		for again := 0; ; again++ {
			step := *c
			step.Rate = rate
			p.Title("[%.0f/s]", rate)
			x, err := measureOnce(ctx, &step, b, p.Show)
			if err != nil {
				return false, err
			}
			why := violation(&step, x, bound)
			r.Results = append(r.Results, x)
			r.Search.Steps = append(r.Search.Steps, SearchStep{Rate: rate, AckedRate: x.AckedRate, P99: x.Ack.P99,
				DeliveryP99: x.Delivery.P99, Backlog: x.BacklogAtEnd, Kept: why == "", Why: why})
			// Other processes of the machine may have caused a near miss.
			if why == "" || again > 0 || x.Ack.P99 > 3*r.Search.P99Ms {
				return why == "", nil
			}
		}
	})
	return r, err
}

func printSearch(out io.Writer, s *Search) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "rate\tacked/s\tack p99\tdelivery p99 ms\tbacklog\t\t")
	for _, st := range s.Steps {
		why := st.Why
		if st.Kept {
			why = "kept"
		}
		fmt.Fprintf(w, "%.0f\t%.0f\t%s\t%s\t%d\t%s\t\n", st.Rate, st.AckedRate, millis(st.P99), millis(st.DeliveryP99),
			st.Backlog, why)
	}
	w.Flush()
	if s.Best == 0 {
		fmt.Fprintf(out, "\nno rate kept p99 <= %s ms\n", millis(s.P99Ms))
		return
	}
	fmt.Fprintf(out, "\nlargest rate with p99 <= %s ms: %.0f messages/s\n", millis(s.P99Ms), s.Best)
}
