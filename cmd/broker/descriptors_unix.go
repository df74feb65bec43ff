//go:build unix

package main

import (
	"math"
	"os/signal"
	"syscall"
)

// maxDescriptors returns how many files and connections this process may have open, 0 if unknown.
// Go raises the limit to the hard limit at the start.
func maxDescriptors() int {
	var l syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l); err != nil {
		return 0
	}
	return int(min(l.Cur, math.MaxInt32))
}

// ignoreFileLimit makes a write beyond the largest size of a file (ulimit -f) an error, as that of a
// disk that is full. The signal would end the process.
func ignoreFileLimit() { signal.Ignore(syscall.SIGXFSZ) }
