package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// A spout is a pipe for what a broker prints, with as little room as the system allows.
type spout struct{ reader, writer *os.File }

func newSpout(t *testing.T) *spout {
	r, w, err := os.Pipe()
	require.NoError(t, err)
	t.Cleanup(func() { _ = r.Close() })
	_, err = unix.FcntlInt(w.Fd(), unix.F_SETPIPE_SZ, 4096)
	require.NoError(t, err)
	return &spout{r, w}
}

// printing starts a broker whose stdout and stderr may be spouts.
func (w *world) printing(stdout, stderr *spout, args, env []string) *process {
	addr := freeAddr(w.t)
	p := &process{t: w.t, world: w, base: "http://" + addr, log: &syncBuffer{}, done: make(chan struct{})}
	p.cmd = exec.Command(os.Args[0], append([]string{"serve"}, args...)...)
	p.cmd.Env = append(append(clearedEnv(), envMain+"=1", "BROKER_LISTEN="+addr, "BROKER_ADMIN_TOKEN="+adminToken,
		"BROKER_OPEN_MANAGEMENT=true"), append(w.env, env...)...)
	p.cmd.Stdout, p.cmd.Stderr = p.log, p.log
	for _, s := range []struct {
		spout *spout
		to    *io.Writer
	}{{stdout, &p.cmd.Stdout}, {stderr, &p.cmd.Stderr}} {
		if s.spout != nil {
			*s.to = s.spout.writer
		}
	}
	require.NoError(w.t, p.cmd.Start())
	go func() { _ = p.cmd.Wait(); close(p.done) }()
	w.t.Cleanup(p.kill)
	for _, s := range []*spout{stdout, stderr} {
		if s != nil {
			require.NoError(w.t, s.writer.Close())
		}
	}
	p.awaitReady()
	return p
}

// deletions makes the broker log a line for each of n deletions, with a long ID.
func (p *process) deletions(from, n int) {
	for i := range n {
		path := fmt.Sprintf("/channel/z%d%s", from+i, strings.Repeat("z", 230))
		p.put(path, "token", "t")
		require.Equal(p.t, 204, p.do("DELETE", path, "").status)
	}
}

// droppedAt returns the count of lost lines.
func (p *process) droppedAt(to string) float64 {
	return p.gauge(p.t, `penstock_log_lines_dropped_total{to="`+to+`"}`)
}

// Nobody reads the log: every request is answered, and what does not fit is dropped and counted. A
// reader that comes back learns how many lines it missed.
func TestALogThatNobodyReadsHoldsNothingUp(t *testing.T) {
	parallel(t)
	s := newSpout(t)
	p := embeddedWorld(t).printing(nil, s, nil, []string{"BROKER_ALLOW_DELETE=true"})
	n := 0
	for ; p.droppedAt("stderr") == 0; n += 100 {
		require.Less(t, n, 5000, "the memory for lines has a bound")
		p.deletions(n, 100)
	}
	lost := p.droppedAt("stderr")
	var out syncBuffer
	ended := make(chan struct{})
	go func() {
		_, _ = io.Copy(&out, s.reader)
		close(ended)
	}()
	p.deletions(n, 1)
	// A stop waits for the reader for a moment only, so it has caught up before.
	eventually(t, "the reader of the log", func() bool {
		return strings.Contains(out.String(), "lines of the log were dropped")
	})
	require.Equal(t, 0, p.stop())
	<-ended
	text := out.String()
	require.Contains(t, text, `"msg":"stopped"`)
	all := 0.0 // the reader may have been slow once more
	for _, notice := range regexp.MustCompile(
		`"msg":"lines of the log were dropped here, because nobody read them","lines":(\d+)}`).FindAllStringSubmatch(text,
		-1) {
		n, err := strconv.ParseFloat(notice[1], 64)
		require.NoError(t, err)
		all += n
	}
	require.GreaterOrEqual(t, all, lost, "every line that is missing is counted")
}

func TestABrokerWhoseLogNobodyReadsStops(t *testing.T) {
	parallel(t)
	for name, signals := range map[string][]os.Signal{"at the first signal": {syscall.SIGTERM},
		"at the second signal at once": {syscall.SIGTERM, syscall.SIGINT}} {
		t.Run(name, func(t *testing.T) {
			parallel(t)
			s := newSpout(t)
			env := []string{"BROKER_ALLOW_DELETE=true"}
			code := exitClean
			if len(signals) > 1 {
				env = append(env, "BROKER_DRAIN_DELAY=1h")
				code = exitSignal + int(syscall.SIGINT)
			}
			p := embeddedWorld(t).printing(nil, s, nil, env)
			p.deletions(0, 30) // more than the pipe takes
			for i, signal := range signals {
				require.NoError(t, p.cmd.Process.Signal(signal))
				if i < len(signals)-1 {
					eventually(t, "the drain", func() bool { return p.do("GET", "/readyz", "").status == 503 })
				}
			}
			p.awaitEnd()
			require.Equal(t, code, p.cmd.ProcessState.ExitCode())
		})
	}
}

func TestAReaderOfTheLogThatGoesAwayEndsNothing(t *testing.T) {
	parallel(t)
	s := newSpout(t)
	p := embeddedWorld(t).printing(nil, s, nil, []string{"BROKER_ALLOW_DELETE=true"})
	require.NoError(t, s.reader.Close())
	p.deletions(0, 3)
	eventually(t, "the lost lines", func() bool { return p.droppedAt("stderr") >= 3 })
	require.Equal(t, 0, p.stop())
}

// The sample of --demo prints what it gets before it answers.
func TestADemoWhoseOutputNobodyReadsGetsItsMessages(t *testing.T) {
	parallel(t)
	s := newSpout(t)
	p := embeddedWorld(t).printing(s, nil, []string{"--demo"}, nil)
	body := string(bytes.Repeat([]byte("x"), 2000))
	for n := 0; p.droppedAt("stdout") == 0; n++ {
		require.Less(t, n, 5000)
		require.Equal(t, 201, p.do("POST", "/channel/"+sampleChannel+"/broadcast", body, "X-Broker-Channel-Token",
			sampleChannel+"-token",
			"X-Broker-Producer-ID", sampleProducer, "X-Broker-Producer-Token", sampleProducer+"-token").status)
	}
	eventually(t, "the deliveries", func() bool {
		v := p.do("GET", "/channel/"+sampleChannel+"/consumer/"+samplePush, "").json(t)
		return v["Queued"] == 0.0 && v["InFlight"] == 0.0
	})
	require.Equal(t, 0, p.stop())
}
