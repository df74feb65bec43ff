package bench

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
)

// Switches returns how often the threads of the process that live now gave up a processor, or had
// to. ok is false where that cannot be read.
func (p Process) Switches() (n int64, ok bool) {
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", p.PID))
	if err != nil {
		return 0, false
	}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			continue // the thread has ended
		}
		n += switchesIn(b)
		ok = true
	}
	return n, ok
}

// switchesIn adds up voluntary_ctxt_switches and nonvoluntary_ctxt_switches of a status file.
func switchesIn(status []byte) (n int64) {
	for line := range bytes.Lines(status) {
		name, value, ok := bytes.Cut(line, []byte(":"))
		if !ok || !bytes.HasSuffix(name, []byte("voluntary_ctxt_switches")) {
			continue
		}
		if v, err := strconv.ParseInt(string(bytes.TrimSpace(value)), 10, 64); err == nil {
			n += v
		}
	}
	return n
}
