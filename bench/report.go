package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/penstock-broker/penstock/durable"
)

// A Report is everything about a run, as --json writes it and compare reads it.
type Report struct {
	Format   int // of this file; 1
	Kind     string
	Created  time.Time
	Hardware Hardware
	Versions map[string]any
	Stores   string
	// Durability describes how the durable store flushes, as far as the server reports it.
	Durability []string `json:",omitempty"`
	Config     Config
	Results    []*Result    `json:",omitempty"` // one per repeat
	Limits     []*Limits    `json:",omitempty"` // one per repeat
	Efficiency []Efficiency `json:",omitempty"` // one per repeat
	Search     *Search      `json:",omitempty"` // of find-max
	Warnings   []string     `json:",omitempty"`
}

// reportFormat is the version of Report.
const reportFormat = 1

// Hardware is the machine that everything ran on.
type Hardware struct {
	CPU      string
	Cores    int
	MemoryMB int64
	Kernel   string
	OS       string
}

// ThisMachine describes the hardware as far as the system reports it.
func ThisMachine() Hardware {
	h := Hardware{Cores: cores(), OS: runtime.GOOS + "/" + runtime.GOARCH}
	if b, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(b)) {
			if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
				h.CPU = strings.TrimSpace(value)
				break
			}
		}
	}
	if b, err := os.ReadFile("/proc/meminfo"); err == nil {
		var kb int64
		if _, err := fmt.Sscanf(string(b), "MemTotal: %d kB", &kb); err == nil {
			h.MemoryMB = kb / 1024
		}
	}
	if b, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		h.Kernel = strings.TrimSpace(string(b))
	}
	return h
}

func newReport(ctx context.Context, kind string, c *Config, b *Broker) *Report {
	r := &Report{
		Format: reportFormat, Kind: kind, Created: time.Now().UTC(), Hardware: ThisMachine(),
		Versions: map[string]any{"go": runtime.Version()}, Stores: c.stores(), Config: *c,
	}
	if b != nil {
		ctl := NewControl(b.URL, c.AdminToken)
		defer ctl.Close()
		if v := ctl.Version(ctx); v != nil {
			r.Versions["broker"] = v
		}
	}
	r.Durability = durability(ctx, c)
	return r
}

// durability asks the store for its settings.
func durability(ctx context.Context, c *Config) []string {
	switch {
	case c.MySQL != "":
		s, err := durable.OpenMySQL(ctx, c.MySQL, durable.Options{MaxConns: 1})
		if err != nil {
			return []string{"the database cannot be reached"}
		}
		defer s.Close()
		warnings := s.Warnings()
		if len(warnings) == 0 {
			warnings = []string{"flushes each commit to disk"}
		}
		return append([]string{s.Describe()}, warnings...)
	case c.URL == "":
		return []string{"SQLite, WAL, synchronous=FULL: flushes each commit to disk"}
	default:
		return nil
	}
}

// Write stores the report as JSON.
func (r *Report) Write(path string) error {
	b, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return fmt.Errorf("encode report: %w", err)
	}
	return os.WriteFile(path, append(b, '\n'), 0o644)
}

// maxReportBytes bounds the size of a report that ReadReport accepts.
const maxReportBytes = 256 << 20

// ReadReport reads a report that Write has written.
func ReadReport(path string) (*Report, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.Size() > maxReportBytes {
		return nil, fmt.Errorf("%s: larger than any report", path)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var r Report
	if err := json.Unmarshal(b, &r); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if r.Format != reportFormat {
		return nil, fmt.Errorf("%s: format %d: this program reads %d", path, r.Format, reportFormat)
	}
	if len(r.Results) == 0 || slices.Contains(r.Results, nil) {
		return nil, errors.New(path + ": contains no results of a run")
	}
	return &r, nil
}

// median returns the middle of the values, the lower one of two middle values, 0 without values.
func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	s := slices.Clone(values)
	slices.Sort(s)
	return s[(len(s)-1)/2]
}

// pick returns one number of each result.
func pick(results []*Result, f func(*Result) float64) []float64 {
	out := make([]float64, 0, len(results))
	for _, r := range results {
		out = append(out, f(r))
	}
	return out
}
