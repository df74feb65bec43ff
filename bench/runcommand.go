package bench

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
)

// output has the paths of the files that a command writes in addition to its table.
type output struct{ json, html string }

func (o *output) register(f *flag.FlagSet) {
	f.StringVar(&o.json, "json", "", "write the report to this `file`, for compare")
	f.StringVar(&o.html, "html", "", "write a page with plots to this `file`")
}

func (o *output) write(r *Report) error {
	if o.json != "" {
		if err := r.Write(o.json); err != nil {
			return err
		}
	}
	if o.html != "" {
		page, err := RenderHTML(r)
		if err != nil {
			return err
		}
		return os.WriteFile(o.html, page, 0o644)
	}
	return nil
}

func runCommand(ctx context.Context, args []string, out, progress io.Writer) (int, error) {
	var c Config
	var o output
	f := flags("run")
	c.register(f)
	o.register(f)
	if err := parse(f, args, out); err != nil {
		return ExitUsage, err
	}
	return runAndReport(ctx, "run", &c, o, out, progress)
}

// publishCommand is a run without consumers. It measures publishing alone.
func publishCommand(ctx context.Context, args []string, out, progress io.Writer) (int, error) {
	var c Config
	var o output
	f := flags("publish")
	c.register(f)
	o.register(f)
	if err := parse(f, args, out); err != nil {
		return ExitUsage, err
	}
	c.PushConsumers, c.PullWorkers = 0, 0
	return runAndReport(ctx, "publish", &c, o, out, progress)
}

func runAndReport(ctx context.Context, kind string, c *Config, o output, out, progress io.Writer) (int, error) {
	if err := c.validate(); err != nil {
		return ExitUsage, err
	}
	r, err := measure(ctx, kind, c, progress)
	if r == nil || len(r.Results) == 0 {
		return ExitCannotStart, err
	}
	PrintRun(out, r)
	PrintEfficiency(out, r)
	for _, w := range r.Warnings {
		fmt.Fprintln(out, w)
	}
	code := ExitOK
	for _, x := range r.Results {
		if !x.Ledger.OK() || c.Strict && (x.Ledger.Duplicates > 0 || x.Ledger.Overtaken > 0) || x.Audit != nil &&
			x.Audit.Deviations > 0 {
			code = ExitPromise
		} else if !x.Ledger.Proven() && code == ExitOK {
			code = ExitUnproven
		}
	}
	switch code {
	case ExitPromise:
		fmt.Fprintln(out, "\nFAILED: a promise was broken")
	case ExitUnproven:
		fmt.Fprintln(out, "\nUNPROVEN: deliveries were still pending; a longer --drain, a --rate or --max-backlog lets "+
			"them end")
	}
	return code, errors.Join(err, o.write(r))
}

// measure opens the broker and runs all repeats. After an error the report contains the completed
// repeats.
func measure(ctx context.Context, kind string, c *Config, progress io.Writer) (r *Report, err error) {
	b, err := OpenBroker(ctx, c)
	if err != nil {
		return nil, err
	}
	r = newReport(ctx, kind, c, b)
	defer func() {
		if words := b.Warnings(); words != "" {
			r.Warnings = append(r.Warnings, "the broker logged:\n"+words)
		}
		b.remove(ctx, c, progress)
		err = errors.Join(err, b.Close())
	}()
	p := NewProgress(progress)
	defer p.Done()
	for i := range c.Repeat {
		if c.WithLimits {
			p.Title("[limits %d/%d]", i+1, c.Repeat)
			limits, err := MeasureLimits(ctx, limitsConfigOf(c))
			if err != nil {
				return r, err
			}
			r.Limits = append(r.Limits, limits)
		}
		p.Title("[run %d/%d]", i+1, c.Repeat)
		x, err := measureOnce(ctx, c, b, p.Show)
		if err != nil {
			return r, err
		}
		r.Results = append(r.Results, x)
		if c.WithLimits {
			r.Efficiency = append(r.Efficiency, Efficient(c, x, r.Limits[i], r.Hardware.Cores))
		}
		if ctx.Err() != nil {
			return r, nil
		}
	}
	return r, nil
}

// measureOnce is one window on an open broker.
func measureOnce(ctx context.Context, c *Config, b *Broker, watch func(Live)) (*Result, error) {
	addr, err := hostPort(b.URL)
	if err != nil {
		return nil, fmt.Errorf("broker URL: %w", err)
	}
	ctl := NewControl(b.URL, c.AdminToken)
	defer ctl.Close()
	w, err := newWindow(c, ctl, addr)
	if err != nil {
		return nil, err
	}
	if b.dir == "" {
		b.made = append(b.made, w.subject)
	}
	return w.Window(ctx, b.Processes, watch)
}
