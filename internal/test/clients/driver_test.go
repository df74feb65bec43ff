package clients

import (
	"bufio"
	"encoding/json"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/test/hostile"
)

// A driver is a small program of a client that does what the table of hostile_test.go asks for. Its first
// argument is what it does (worker, publish, batch or request), its second one options as JSON. It prints
// a line of JSON for each thing that it does.
type driver struct {
	client  string
	program []string // the program, and arguments before those of the table
}

// A line is what a driver prints.
type line struct {
	Event   string // ready, start, done, failed, lost, stopped, published, answer or end
	ID      string // of the message
	Task    string
	Attempt int
	Error   string
	Code    string
	Status  int
	Body    string
	Left    int // goroutines, threads or handles that the client still has at its end
}

// A running is a driver that runs.
type running struct {
	t    *testing.T
	b    *hostile.Broker // nil: a real one
	cmd  *exec.Cmd
	errs *text
	done chan struct{} // closed when the program has ended

	mu    sync.Mutex
	lines []line
	come  chan struct{} // closed with the next line
}

// run starts a driver against a hostile broker.
func (d driver) run(t *testing.T, b *hostile.Broker, mode string, options map[string]any) *running {
	t.Helper()
	r := d.start(t, b.URL, mode, options)
	r.b = b
	return r
}

// start starts a driver. It is killed at the end of the test, if it has not ended.
func (d driver) start(t *testing.T, url, mode string, options map[string]any) *running {
	t.Helper()
	if options == nil {
		options = map[string]any{}
	}
	asked, err := json.Marshal(options)
	require.NoError(t, err)
	r := &running{t: t, errs: &text{}, done: make(chan struct{}), come: make(chan struct{})}
	r.cmd = exec.Command(d.program[0], slices.Concat(d.program[1:], []string{mode, string(asked)})...)
	r.cmd.Dir, err = filepath.Abs(root)
	require.NoError(t, err)
	r.cmd.Env = append(cleanEnv(), "PENSTOCK_URL="+url)
	r.cmd.Stderr = r.errs
	out, err := r.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, r.cmd.Start())
	go func() {
		defer close(r.done)
		for s := bufio.NewScanner(out); s.Scan(); {
			r.take(s.Bytes())
		}
		_ = r.cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = r.cmd.Process.Kill()
		<-r.done
		if t.Failed() {
			t.Logf("the driver printed %+v\nand said:\n%s", r.all(), r.errs)
			if r.b != nil {
				t.Logf("the broker got:\n%+v", r.b.Requests(""))
			}
		}
	})
	return r
}

func (r *running) take(text []byte) {
	var l line
	if err := json.Unmarshal(text, &l); err != nil {
		l = line{Event: "no JSON: " + string(text)}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines = append(r.lines, l)
	close(r.come)
	r.come = make(chan struct{})
}

// all are the lines so far.
func (r *running) all() []line {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]line(nil), r.lines...)
}

// printed are the lines of an event.
func (r *running) printed(event string) (some []line) {
	for _, l := range r.all() {
		if l.Event == event {
			some = append(some, l)
		}
	}
	return some
}

// ids are the messages of the lines of an event, in their order.
func (r *running) ids(event string) (ids []string) {
	for _, l := range r.printed(event) {
		ids = append(ids, l.ID)
	}
	return ids
}

// await waits until is true, which it asks again after each line and each change of the broker.
func (r *running) await(what string, is func() bool) {
	r.t.Helper()
	late := time.After(patience)
	for {
		r.mu.Lock()
		come := r.come
		r.mu.Unlock()
		var changed <-chan struct{}
		if r.b != nil {
			changed = r.b.Changed()
		}
		if is() {
			return
		}
		select {
		case <-come:
		case <-changed:
		case <-time.After(200 * time.Millisecond): // leases end by themselves
		case <-r.done:
			if !is() {
				r.t.Fatalf("the driver has ended before: %s", what)
			}
			return
		case <-late:
			r.t.Fatalf("not in time: %s", what)
		}
	}
}

// signal sends a SIGTERM.
func (r *running) signal() { _ = r.cmd.Process.Signal(syscall.SIGTERM) }

// insist sends a second SIGTERM, and again where it was lost because it came together with the first one. A
// driver that is about to end without it is left alone.
func (r *running) insist() {
	r.t.Helper()
	late := time.After(patience)
	for next := 2 * time.Second; ; next = 20 * time.Second {
		select {
		case <-r.done:
			return
		case <-late:
			r.t.Fatal("the driver does not end")
		case <-time.After(next):
			if len(r.printed("end")) == 0 {
				r.signal()
			}
		}
	}
}

// end waits for the end of the program, and requires its exit code and a last line that tells of nothing left.
func (r *running) end(code int) line {
	r.t.Helper()
	select {
	case <-r.done:
	case <-time.After(patience):
		r.t.Fatal("the driver does not end")
	}
	require.Equal(r.t, code, r.cmd.ProcessState.ExitCode(), "exit code")
	lines := r.all()
	require.NotEmpty(r.t, lines)
	last := lines[len(lines)-1]
	require.Equal(r.t, "end", last.Event, "the last line")
	require.Zero(r.t, last.Left, "what the client leaves behind")
	for _, l := range lines {
		require.NotContains(r.t, l.Event, "no JSON")
	}
	return last
}
