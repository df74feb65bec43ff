package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// A doneJob is a line that a job has appended to the file of its worker at its end.
type doneJob struct {
	n  int
	at int64 // ns of the monotonic clock of the machine
}

// readDone returns the jobs of a kind that are done, in the order of their lines. A line is one write,
// so only the last one of a file may be torn, which is then no line yet.
func readDone(file, kind string) (done []doneJob, err error) {
	b, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read what is done: %w", err)
	}
	prefix := []byte(kind + " ")
	for line := range bytes.Lines(b) {
		rest, ok := bytes.CutPrefix(line, prefix)
		if !ok || !bytes.HasSuffix(rest, []byte("\n")) {
			continue
		}
		var d doneJob
		if _, err := fmt.Sscanf(string(rest), "%d %d", &d.n, &d.at); err != nil {
			return nil, fmt.Errorf("the line %q of %s: %w", line, file, err)
		}
		done = append(done, d)
	}
	return done, nil
}

func distinct(done []doneJob) int {
	seen := map[int]bool{}
	for _, d := range done {
		seen[d.n] = true
	}
	return len(seen)
}

// reconcile compares what was acknowledged with what was done: jobs that were not done at all, and
// times that a job was done again.
func reconcile(acked []int, done []doneJob) (lost, repeated int) {
	times := map[int]int{}
	for _, d := range done {
		times[d.n]++
	}
	for _, n := range acked {
		if times[n] == 0 {
			lost++
		}
	}
	return lost, len(done) - len(times)
}

// rate returns jobs per second from the end of one job, after the first ones, to that of the last.
func rate(done []doneJob, skip int) float64 {
	at := make([]int64, 0, len(done))
	for _, d := range done {
		at = append(at, d.at)
	}
	slices.Sort(at)
	if skip = max(skip, 1); len(at) <= skip || at[len(at)-1] == at[skip-1] {
		return 0
	}
	return float64(len(at)-skip) * 1e9 / float64(at[len(at)-1]-at[skip-1])
}

// memoryOf returns the memory of all processes of a group: with shared pages counted for each process,
// and once.
func memoryOf(group int) (rss, pss int64, err error) {
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return 0, 0, err
	}
	for _, stat := range stats {
		b, err := os.ReadFile(stat)
		if err != nil {
			continue // it has ended meanwhile
		}
		// After the name, which is in parentheses: state, parent, group.
		_, after, _ := strings.Cut(string(b[bytes.LastIndexByte(b, ')')+1:]), " ")
		if fields := strings.Fields(after); len(fields) < 3 || fields[2] != strconv.Itoa(group) {
			continue
		}
		b, err = os.ReadFile(filepath.Join(filepath.Dir(stat), "smaps_rollup"))
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
			continue
		}
		if err != nil {
			return 0, 0, fmt.Errorf("read the memory of the worker: %w", err)
		}
		rss += kilobytes(b, "Rss:")
		pss += kilobytes(b, "Pss:")
	}
	if rss == 0 {
		return 0, 0, errors.New("the worker has no process")
	}
	return rss, pss, nil
}

// kilobytes returns a line of /proc as bytes.
func kilobytes(text []byte, name string) int64 {
	for line := range bytes.Lines(text) {
		if fields := bytes.Fields(line); len(fields) == 3 && string(fields[0]) == name {
			n, _ := strconv.ParseInt(string(fields[1]), 10, 64)
			return n << 10
		}
	}
	return 0
}
