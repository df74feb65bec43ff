package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"
)

// A clientRun is one measurement of a client.
type clientRun struct {
	Client          string
	Round           int
	Published       float64 // jobs/s that one program published, all of them acknowledged
	Done            float64 // jobs/s of the worker, while the backlog was done
	Efficiency      float64 // of the slots, with jobs of 100 ms
	AskP50, AskP99  float64 // ms from publishing to the result
	RSS, PSS        int64   // bytes of all processes of the worker
	Lost, Repeated  int     // of the backlog
	Failure         string  `json:",omitempty"`
	PublishFailures int
}

// Times of one step. A client that is slower has no result.
const (
	publishWithin = 60 * time.Second
	doneWithin    = 90 * time.Second
	askWithin     = 4 * time.Second
	pollPause     = 10 * time.Millisecond
	rateLease     = 30 // seconds, of jobs that no kill interrupts
)

func (x *clientRun) line() string {
	if x.Failure != "" {
		return "FAILED: " + x.Failure
	}
	return fmt.Sprintf("%.0f published/s, %.0f done/s, efficiency %.2f, result p50 %.1f p99 %.1f ms,"+
		" %d MiB (shared pages once: %d), %d lost, %d repeated",
		x.Published, x.Done, x.Efficiency, x.AskP50, x.AskP99, x.RSS>>20, x.PSS>>20, x.Lost, x.Repeated)
}

func (x *clientRun) measure(ctx context.Context, o *clientOptions, stores *clientStores, c *clientSubject) (err error) {
	j, err := newJobs(o, stores, c, rateLease)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, j.Close()) }()
	told, err := j.produce(ctx, publishWithin, "publish", "nothing", strconv.Itoa(o.backlog), "0")
	if err != nil {
		return err
	}
	x.Published, x.PublishFailures = float64(len(told.Acked))/told.Seconds, told.Failed
	if err := j.start(); err != nil {
		return err
	}
	done, err := j.await(ctx, "nothing", len(told.Acked), doneWithin)
	if err != nil {
		return err
	}
	x.Lost, x.Repeated = reconcile(told.Acked, done)
	x.Done = rate(done, 0)
	if told, err = j.produce(ctx, publishWithin, "publish", "sleep", strconv.Itoa(o.sleeps), "100"); err != nil {
		return err
	}
	if done, err = j.await(ctx, "sleep", len(told.Acked), doneWithin); err != nil {
		return err
	}
	// Full slots do a job each every 100 ms. The first jobs are left out: they came while others were
	// still being published.
	x.Efficiency = rate(done, 2*slots) * 0.1 / slots
	seconds := strconv.Itoa(int(askWithin.Seconds()))
	if told, err = j.produce(ctx, askWithin+publishWithin, "ask", strconv.Itoa(o.asks), seconds); err != nil {
		return err
	}
	if len(told.Latencies) == 0 {
		return fmt.Errorf("no result came: %s", told.Error)
	}
	slices.Sort(told.Latencies)
	x.AskP50, x.AskP99 = percentile(told.Latencies, 0.50), percentile(told.Latencies, 0.99)
	x.RSS, x.PSS, err = memoryOf(j.worker.cmd.Process.Pid)
	return err
}

// jobs are the programs of a client: its producers, one worker, and the file that jobs append to.
type jobs struct {
	o      *clientOptions
	c      *clientSubject
	folder string
	file   string
	env    []string
	worker *process
	n      int
}

func newJobs(o *clientOptions, stores *clientStores, c *clientSubject, lease int) (*jobs, error) {
	folder, err := os.MkdirTemp(o.dir, "penstock-jobs-")
	if err != nil {
		return nil, fmt.Errorf("make a folder: %w", err)
	}
	j := &jobs{o: o, c: c, folder: folder, file: filepath.Join(folder, "done")}
	j.env = append(plainEnv(), "JOBS_CLIENT="+c.client, "JOBS_BROKER="+stores.url(c), "JOBS_QUEUE=jobs-"+c.language,
		"JOBS_FILE="+j.file, "JOBS_LEASE="+strconv.Itoa(lease), "JOBS_ACKS="+c.acks,
		"PYTHONPATH="+o.ours, "PYTHONDONTWRITEBYTECODE=1")
	return j, nil
}

// start starts a worker.
func (j *jobs) start() (err error) {
	args := []string{j.o.node, "jobs.mjs", "worker", strconv.Itoa(slots)}
	if j.c.language == "python" {
		args = []string{
			j.o.python, "-m", j.c.client, "-A", "jobs", "worker", "-c", strconv.Itoa(slots), "-Q", "jobs-python", "-l", "ERROR",
		}
	}
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Dir, cmd.Env = j.o.folder, j.env
	j.n++
	j.worker, err = start(fmt.Sprintf("%s-%d", j.c.name, j.n), j.folder, syscall.SIGKILL, cmd)
	return err
}

// kill ends the worker with all of its processes, at once.
func (j *jobs) kill() error {
	err := syscall.Kill(-j.worker.cmd.Process.Pid, syscall.SIGKILL)
	<-j.worker.exited
	j.worker = nil
	return err
}

// Close stops the worker and removes its files.
func (j *jobs) Close() error {
	var err error
	if j.worker != nil {
		pid := j.worker.cmd.Process.Pid
		err = j.worker.stop()
		_ = syscall.Kill(-pid, syscall.SIGKILL) // processes that a worker has left behind
	}
	return errors.Join(err, os.RemoveAll(j.folder))
}

// produced is what a producer prints.
type produced struct {
	Acked     []int     `json:"acked"`
	Failed    int       `json:"failed"`
	Error     string    `json:"error"`
	Seconds   float64   `json:"seconds"`
	Latencies []float64 `json:"latencies"`
}

// produce runs a producer to its end.
func (j *jobs) produce(ctx context.Context, within time.Duration, args ...string) (*produced, error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	program := []string{j.o.node, "jobs.mjs"}
	if j.c.language == "python" {
		program = []string{j.o.python, "jobs.py"}
	}
	cmd := exec.CommandContext(ctx, program[0], append(program[1:], args...)...)
	cmd.Dir, cmd.Env = j.o.folder, j.env
	out, err := cmd.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			err = fmt.Errorf("%w\n%s", err, exit.Stderr[max(0, len(exit.Stderr)-2000):])
		}
		return nil, fmt.Errorf("%s %v: %w", j.c.name, args, err)
	}
	var t produced
	if err := json.Unmarshal(out, &t); err != nil {
		return nil, fmt.Errorf("%s %v printed %q: %w", j.c.name, args, out, err)
	}
	if len(t.Acked) == 0 {
		return nil, fmt.Errorf("%s %v: nothing was acknowledged: %s", j.c.name, args, t.Error)
	}
	return &t, nil
}

// await waits until so many different jobs of a kind are done.
func (j *jobs) await(ctx context.Context, kind string, count int, within time.Duration) ([]doneJob, error) {
	for end := time.Now().Add(within); ; {
		done, err := readDone(j.file, kind)
		if err != nil {
			return nil, err
		}
		switch {
		case distinct(done) >= count:
			return done, nil
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case time.Now().After(end):
			return nil, fmt.Errorf("%d of %d jobs are done after %s; the worker says:\n%s", distinct(done), count, within,
				j.worker.lastWords())
		}
		select {
		case <-j.worker.exited:
			return nil, fmt.Errorf("the worker ended: %w\n%s", j.worker.err, j.worker.lastWords())
		case <-time.After(pollPause):
		}
	}
}

// percentile returns the value below which the part of the sorted values is.
func percentile(sorted []float64, part float64) float64 {
	return sorted[min(len(sorted)-1, int(part*float64(len(sorted))))]
}
