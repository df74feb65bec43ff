package timerslack

import (
	"fmt"
	"os"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Now returns the slack of the calling thread, which all threads of a program have
// unless it was changed since.
func Now() (time.Duration, error) {
	ns, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0)
	return time.Duration(ns), err
}

// Set gives every thread of this program that slack. A thread has the slack of the
// one that made it, and the runtime's monitor is made before any code of ours runs:
// so the program starts over, in the same process, with the same arguments and
// environment. Call it first of all in main; where it has that slack already, or
// can not have it, it returns. 0 changes nothing.
func Set(slack time.Duration) error {
	if slack <= 0 {
		return nil
	}
	runtime.LockOSThread() // the slack is the thread's that starts over
	defer runtime.UnlockOSThread()
	before, err := Now()
	if err != nil || before == slack {
		return err
	}
	if err := unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(slack), 0, 0, 0); err != nil {
		return fmt.Errorf("set the timer slack: %w", err)
	}
	if now, err := Now(); err != nil || now != slack { // or it would start over for ever
		return fmt.Errorf("set the timer slack: it is %v: %w", now, err)
	}
	self, err := os.Executable()
	if err == nil {
		err = syscall.Exec(self, os.Args, os.Environ())
	}
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(before), 0, 0, 0) // as it was
	return fmt.Errorf("start over with another timer slack: %w", err)
}
