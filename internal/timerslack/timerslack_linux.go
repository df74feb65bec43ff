package timerslack

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// startedOver is the variable that a program which starts over finds, once: whatever
// became of its slack, it does not do so again.
const startedOver = "TIMER_SLACK_STARTED_OVER"

// Now returns the slack of the calling thread, which all threads of a program have
// unless it was changed since.
func Now() (time.Duration, error) {
	ns, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0)
	return time.Duration(ns), err
}

// SetThread gives that slack to the calling thread, to which the caller has locked its
// goroutine, and so to the threads and processes that it starts from then on.
func SetThread(slack time.Duration) error {
	if err := unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(slack), 0, 0, 0); err != nil {
		return fmt.Errorf("set the timer slack: %w", err)
	}
	return nil
}

var errAgain = errors.New("the program started over, and its timer slack is another one all the same")

// Set gives every thread of this program that slack. A thread has the slack of the
// one that made it, and the runtime's monitor is made before any code of ours runs:
// so the program starts over, in the same process, with the same arguments and
// environment. Call it first of all in main; where it has that slack already, or
// cannot have it, it returns. 0 changes nothing.
func Set(slack time.Duration) error {
	if slack <= 0 {
		return nil
	}
	_, again := os.LookupEnv(startedOver)
	if err := os.Unsetenv(startedOver); err != nil { // children are programs of their own
		return err
	}
	runtime.LockOSThread() // the slack is the thread's that starts over
	defer runtime.UnlockOSThread()
	before, err := Now()
	if err != nil || before == slack {
		return err
	}
	if again {
		return errAgain
	}
	if err := SetThread(slack); err != nil {
		return err
	}
	self, err := os.Executable()
	if err == nil {
		err = syscall.Exec(self, os.Args, append(os.Environ(), startedOver+"=1"))
	}
	_ = SetThread(before) // as it was
	return fmt.Errorf("start over with another timer slack: %w", err)
}
