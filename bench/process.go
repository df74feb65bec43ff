package bench

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// userHz is the unit of CPU times in /proc: 100 on every Linux that Go runs on.
const userHz = 100

// A Process is a process whose CPU time counts.
type Process struct {
	Name string
	PID  int
}

// CPU returns the user and system time of the process so far. ok is false where
// it cannot be read: it has ended, or this is not Linux.
func (p Process) CPU() (t time.Duration, ok bool) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.PID))
	if err != nil {
		return 0, false
	}
	return parseStat(b)
}

// ResidentMB returns the resident memory in MiB. ok is false where it cannot be read.
func (p Process) ResidentMB() (mb float64, ok bool) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", p.PID))
	if err != nil {
		return 0, false
	}
	fields := bytes.Fields(b)
	if len(fields) < 2 {
		return 0, false
	}
	pages, err := strconv.ParseInt(string(fields[1]), 10, 64)
	return float64(pages) * float64(os.Getpagesize()) / (1 << 20), err == nil
}

// parseStat reads utime and stime. The name in parentheses may contain any bytes, so parseStat
// counts the fields from the last parenthesis.
func parseStat(b []byte) (time.Duration, bool) {
	_, after, ok := bytes.Cut(b[max(bytes.LastIndexByte(b, ')'), 0):], []byte{' '})
	fields := bytes.Fields(after)
	if !ok || len(fields) < 13 {
		return 0, false
	}
	user, err1 := strconv.ParseInt(string(fields[11]), 10, 64)
	system, err2 := strconv.ParseInt(string(fields[12]), 10, 64)
	if err1 != nil || err2 != nil {
		return 0, false
	}
	return time.Duration(user+system) * time.Second / userHz, true
}

// A CPUMeter reads the CPU time of several processes at two moments.
type CPUMeter struct {
	processes []Process
	before    []time.Duration
	switched  []int64 // likewise
	machine   machineTime
}

// NewCPUMeter starts to count, for this process and the others.
func NewCPUMeter(others []Process) *CPUMeter {
	m := &CPUMeter{processes: append([]Process{{"bench", os.Getpid()}}, others...)}
	for _, p := range m.processes {
		t, _ := p.CPU()
		m.before = append(m.before, t)
		n, _ := p.Switches()
		m.switched = append(m.switched, n)
	}
	m.machine, _ = readMachine()
	return m
}

// Names under which Seconds counts CPU time that belongs to no process of the measurement. With
// much of it the measurement is of little value.
const (
	// Disturbance is everything else on the machine.
	Disturbance = "others"
	// Stolen is CPU time that the host of a virtual machine gave to other machines while this one
	// had work to do.
	Stolen = "stolen"
)

// Foreign reports whether Seconds counts CPU time under name that is not part of the measurement.
func Foreign(name string) bool { return name == Disturbance || name == Stolen }

// Seconds returns the CPU seconds of each process since NewCPUMeter, by name.
func (m *CPUMeter) Seconds() map[string]float64 {
	out := map[string]float64{}
	for i, p := range m.processes {
		if t, ok := p.CPU(); ok {
			out[p.Name] += (t - m.before[i]).Seconds()
		}
	}
	ours := total(out)
	if now, ok := readMachine(); ok && m.machine.busy > 0 {
		out[Disturbance] = max(0, (now.busy-m.machine.busy).Seconds()-ours)
		if stolen := (now.stolen - m.machine.stolen).Seconds(); stolen > 0 {
			out[Stolen] = stolen
		}
	}
	return out
}

// Switches returns the switches of threads of each process since NewCPUMeter, by name.
func (m *CPUMeter) Switches() map[string]float64 {
	out := map[string]float64{}
	for i, p := range m.processes {
		if n, ok := p.Switches(); ok {
			out[p.Name] += float64(n - m.switched[i])
		}
	}
	return out
}

// total is the sum of the CPU seconds that belong to the measurement.
func total(seconds map[string]float64) (sum float64) {
	for name, s := range seconds {
		if !Foreign(name) {
			sum += s
		}
	}
	return sum
}

// A machineTime is the time of all processors together since the machine started.
type machineTime struct {
	busy   time.Duration
	stolen time.Duration
}

// readMachine reads the times so far. ok is false if /proc lacks them.
func readMachine() (t machineTime, ok bool) {
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		return t, false
	}
	return parseMachine(b)
}

func parseMachine(b []byte) (t machineTime, ok bool) {
	line, _, _ := bytes.Cut(b, []byte{'\n'})
	f := bytes.Fields(line)
	if len(f) < 9 || string(f[0]) != "cpu" {
		return t, false
	}
	// user, nice, system, irq, softirq
	for i, into := range map[int]*time.Duration{1: &t.busy, 2: &t.busy, 3: &t.busy, 6: &t.busy, 7: &t.busy,
		8: &t.stolen} {
		n, err := strconv.ParseInt(string(f[i]), 10, 64)
		if err != nil {
			return machineTime{}, false
		}
		*into += time.Duration(n) * time.Second / userHz
	}
	return t, true
}

// listener finds the process of this machine that listens on host:port. It is the database or the
// Redis whose CPU time is part of the cost of a message. ok is false if the process is on another
// machine or hidden from this user.
func listener(name, addr string) (Process, bool) {
	host, portText, err := net.SplitHostPort(addr)
	if err != nil {
		return Process{}, false
	}
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return Process{}, false
	}
	port, err := strconv.ParseUint(portText, 10, 16)
	if err != nil {
		return Process{}, false
	}
	inodes := map[string]bool{}
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		b, err := os.ReadFile(table)
		if err == nil {
			listeningInodes(b, uint16(port), inodes)
		}
	}
	links, _ := filepath.Glob("/proc/[0-9]*/fd/*") // the pattern is well formed
	for _, link := range links {
		target, err := os.Readlink(link)
		if inode, ok := strings.CutPrefix(target, "socket:["); err == nil && ok && inodes[strings.TrimSuffix(inode, "]")] {
			pid, err := strconv.Atoi(strings.Split(link, "/")[2])
			return Process{Name: name, PID: pid}, err == nil
		}
	}
	return Process{}, false
}

// listeningInodes adds the sockets of /proc/net/tcp that listen on port.
func listeningInodes(table []byte, port uint16, into map[string]bool) {
	want := []byte(":" + strings.ToUpper(hex.EncodeToString([]byte{byte(port >> 8), byte(port)})))
	for line := range bytes.Lines(table) {
		f := bytes.Fields(line)
		const listen = "0A"
		if len(f) > 9 && bytes.HasSuffix(f[1], want) && string(f[3]) == listen {
			into[string(f[9])] = true
		}
	}
}
