//go:build unix

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// An event is a line of `go test -json`; see `go doc test2json`.
type event struct {
	Action  string
	Package string
	Test    string
	Output  string
}

// A summary turns events into output for people: at once the package lines and
// whatever a failed test printed, at the end a table. What a passed test
// printed is dropped.
type summary struct {
	out io.Writer

	vet, exit    error // of go vet, of go test
	mysql, redis string
	elapsed      time.Duration

	passed, failed int
	skipped        []string
	alone          []string            // tests that failed beside the others and passed alone
	packages       map[string]string   // package -> Go's own last line on it
	broken         map[string][]string // package -> what failed in it, subtests as well
	unsound        bool                // a data race, a panic, tests that never ended, or what does not compile
	pending        map[string]map[string]*strings.Builder
}

func newSummary(out io.Writer) *summary {
	return &summary{
		out:      out,
		packages: map[string]string{},
		broken:   map[string][]string{},
		pending:  map[string]map[string]*strings.Builder{},
	}
}

// add takes one line. One that is no event, such as a complaint of the go
// command, is passed on.
func (s *summary) add(line []byte) {
	var e event
	if json.Unmarshal(line, &e) != nil {
		fmt.Fprint(s.out, string(line))
		return
	}
	switch {
	case e.Action == "build-output":
		fmt.Fprint(s.out, e.Output)
	case e.Action == "output":
		s.output(e)
	case e.Test == "":
		s.endPackage(e)
	default:
		s.endTest(e)
	}
}

func (s *summary) output(e event) {
	if e.Test == "" && isResult(e.Output) {
		s.packages[e.Package] = strings.TrimRight(e.Output, "\n")
		fmt.Fprint(s.out, e.Output)
		return
	}
	tests := s.pending[e.Package]
	if tests == nil {
		tests = map[string]*strings.Builder{}
		s.pending[e.Package] = tests
	}
	if tests[e.Test] == nil {
		tests[e.Test] = &strings.Builder{}
	}
	tests[e.Test].WriteString(e.Output)
}

// isResult reports whether line is Go's verdict on a package.
func isResult(line string) bool {
	return strings.HasPrefix(line, "ok  \t") || strings.HasPrefix(line, "FAIL\t") || strings.HasPrefix(line, "?   \t")
}

func (s *summary) endTest(e event) {
	switch e.Action {
	case "pass":
		s.passed++
	case "skip":
		s.skipped = append(s.skipped, e.Package+" "+e.Test)
		s.flush(e.Package, e.Test)
	case "fail":
		s.failed++
		s.broken[e.Package] = append(s.broken[e.Package], e.Test)
		s.flush(e.Package, e.Test)
	default: // start, run, pause, cont, bench
		return
	}
	delete(s.pending[e.Package], e.Test)
}

// endPackage shows, for a failed package, also what was printed outside tests
// and by tests that never ended: a panic, a timeout, a TestMain that gave up.
func (s *summary) endPackage(e event) {
	switch e.Action {
	case "fail":
		if len(s.broken[e.Package]) == 0 {
			s.failed++
			s.unsound = true
		}
		for test := range s.pending[e.Package] {
			s.flush(e.Package, test)
			s.unsound = s.unsound || test != "" // it never ended, and others may not have begun
		}
		if s.packages[e.Package] == "" {
			s.packages[e.Package] = "FAIL\t" + e.Package
		}
	case "pass", "skip":
	default:
		return
	}
	delete(s.pending, e.Package)
}

func (s *summary) flush(pkg, test string) {
	if b := s.pending[pkg][test]; b != nil {
		fmt.Fprint(s.out, b.String())
		s.unsound = s.unsound || unsound.MatchString(b.String())
	}
}

// unsound is what a failed test says that no busy machine explains. The report of a race may stand with another
// test than those that it fails. A panic that a client of ours has caught, and tells of, is none; what the harness
// of cmd/broker finds in the log of a broker is.
var unsound = regexp.MustCompile(`(?m)DATA RACE|race detected|^\s*panic: |reported a race or a panic`)

// ok reports whether the run may count as green.
func (s *summary) ok() bool {
	return s.vet == nil && s.exit == nil && s.failed == 0 && len(s.skipped) == 0 && s.passed > 0
}

// print ends the output: a table, Go's lines on the packages and the line with
// the totals. A skipped test counts as failed: it tested nothing.
func (s *summary) print(out io.Writer) {
	lines := make([]string, 0, len(s.packages))
	tested := 0
	for _, line := range s.packages {
		if !strings.HasPrefix(line, "?") {
			tested++
		}
		lines = append(lines, line)
	}
	slices.SortFunc(lines, func(a, b string) int { return strings.Compare(packageOf(a), packageOf(b)) })

	fmt.Fprintln(out)
	t := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	fmt.Fprintf(t, "MySQL\t%s\n", s.mysql)
	fmt.Fprintf(t, "Redis\t%s\n", s.redis)
	fmt.Fprintf(t, "go vet\t%s\n", verdict(s.vet))
	fmt.Fprintf(t, "packages with tests\t%d\n", tested)
	fmt.Fprintf(t, "tests and subtests passed\t%d\n", s.passed)
	fmt.Fprintf(t, "failed\t%d\n", s.failed)
	fmt.Fprintf(t, "skipped (each a failure)\t%d\n", len(s.skipped))
	fmt.Fprintf(t, "time\t%v\n", s.elapsed.Round(time.Second))
	_ = t.Flush()
	fmt.Fprintln(out)

	for _, line := range lines {
		fmt.Fprintln(out, line)
	}
	for _, name := range s.skipped {
		fmt.Fprintln(out, "skipped:", name)
	}
	for _, name := range s.alone {
		fmt.Fprintln(out, "failed beside the others, as printed above, and passed alone:", name)
	}
	if s.exit != nil && s.failed == 0 {
		fmt.Fprintln(out, "go test:", s.exit)
	}
	if s.passed == 0 {
		fmt.Fprintln(out, "no test ran")
	}
	fmt.Fprintf(out, "%d passed, %d failed\n", s.passed, s.failed+len(s.skipped))
}

func packageOf(line string) string {
	if fields := strings.Fields(line); len(fields) > 1 {
		return fields[1]
	}
	return line
}

func verdict(err error) string {
	if err != nil {
		return "FAILED"
	}
	return "clean"
}
