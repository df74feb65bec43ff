package bench

import (
	"syscall"
	"time"
)

// napFor blocks the thread for at most a few milliseconds, to within some tens
// of microseconds.
func napFor(d time.Duration) {
	ts := syscall.NsecToTimespec(d.Nanoseconds())
	_ = syscall.Nanosleep(&ts, nil) // a signal may end it early; the caller reads the clock again
}
