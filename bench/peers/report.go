package main

import (
	"encoding/json"
	"fmt"
	"os"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/penstock-broker/penstock/bench"
)

// A report is everything that was measured, as -json writes it.
type report struct {
	Format   int // of this file; 1
	Hardware bench.Hardware
	Options  string
	Partial  string `json:",omitempty"` // why the plan was not finished
	Runs     []*sample
}

func (r *report) write(path string) error {
	b, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return fmt.Errorf("encode the report: %w", err)
	}
	return os.WriteFile(path, append(b, '\n'), 0o644)
}

// verdict returns the exit code. Broken promises come first, then failed measurements.
func (r *report) verdict() int {
	code := exitOK
	for _, x := range r.Runs {
		switch {
		case x.Result != nil && x.Result.Ledger != nil && !x.Result.Ledger.OK():
			return exitPromise
		case x.Result == nil:
			code = exitCannot
		case x.doubt() != "" && code == exitOK:
			code = exitUnproven
		}
	}
	return code
}

// doubt returns the reason why a run with a result proves nothing, empty if there is none. A
// backlog that the server counts exactly is no reason.
func (x *sample) doubt() string {
	switch {
	case x.Failure != "":
		return x.Failure
	case x.Result == nil:
		return "no result"
	case !x.Result.Ledger.OK():
		return x.Result.Ledger.Problems()
	case x.Held < 0 && !x.Result.Ledger.Proven():
		return fmt.Sprintf("%d deliveries still pending", x.Result.Ledger.Pending)
	default:
		return ""
	}
}

// line returns a run as a short progress line.
func (x *sample) line() string {
	if x.Result == nil {
		return "FAILED: " + x.Failure
	}
	r := x.Result
	s := fmt.Sprintf("%.0f acked/s, %.0f delivered/s, ack p50 %.2f p99 %.2f ms, end to end p50 %.2f p99 %.2f ms",
		r.AckedRate, r.DeliveredRate, r.Ack.P50, r.Ack.P99, r.Delivery.P50, r.Delivery.P99)
	v := r.Ledger
	s += fmt.Sprintf("; %d acked, %d arrived, %d lost, %d copies", v.Acked, v.Delivered, v.Lost, v.Duplicates)
	if v.Pending > 0 {
		s += fmt.Sprintf(", %d still queued", v.Pending)
	}
	if n := r.ErrorCount(); n > 0 {
		s += fmt.Sprintf(", %d errors %v", n, r.ErrorSamples)
	}
	if x.disturbed() {
		s += fmt.Sprintf("; CAUTION: others used %.1f cores", x.others())
	}
	if d := x.doubt(); d != "" {
		s += "; NOT PROVEN: " + d
	}
	return s
}

// disturbedCores is the use of cores by other processes from which on a run is doubtful, as in the
// harness.
const disturbedCores = 0.3

func (x *sample) others() float64 {
	if x.Result == nil || x.Result.Seconds <= 0 {
		return 0
	}
	return x.Result.CPUSeconds[bench.Disturbance] / x.Result.Seconds
}

func (x *sample) disturbed() bool { return x.others() > disturbedCores }

// client is the name under which the harness and this program count their own CPU time.
const client = "bench"

// serverMicros is the CPU of all server processes per acknowledged message.
func (x *sample) serverMicros() float64 {
	var sum float64
	for name, s := range x.Result.CPUSeconds {
		if name != client && !bench.Foreign(name) {
			sum += s
		}
	}
	return sum * 1e6 / float64(x.Result.Messages)
}

// clientMicros is that of publishers and consumer.
func (x *sample) clientMicros() float64 {
	return x.Result.CPUSeconds[client] * 1e6 / float64(x.Result.Messages)
}

// of returns the runs of a subject that have a result, by round.
func (r *report) of(subject string, publishers int) (out []*sample) {
	for _, x := range r.Runs {
		if x.Subject == subject && x.Publishers == publishers && x.Result != nil {
			out = append(out, x)
		}
	}
	return out
}

// ratios compares the baseline with runs of the same rounds.
func (r *report) ratios(runs []*sample, rate func(*sample) float64) (out []float64) {
	for _, x := range runs {
		for _, b := range r.of(baseline, x.Publishers) {
			if v := rate(x); b.Round == x.Round && v > 0 {
				out = append(out, rate(b)/v)
			}
		}
	}
	return out
}

// median returns the middle of the values, the lower one of two, as the harness does.
func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(values))
	return s[(len(s)-1)/2]
}

// moduleVersion returns the version of a client library that is built in.
func moduleVersion(path string) string {
	name := path[strings.LastIndexByte(path, '/')+1:]
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return name
	}
	for _, m := range info.Deps {
		if m.Path == path {
			return name + " " + m.Version
		}
	}
	return name
}
