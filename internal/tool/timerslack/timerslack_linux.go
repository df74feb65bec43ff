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

// startedOver is the environment variable that Set passes to the program that it starts
// over. A program that finds it never starts over again, whatever its slack is.
const startedOver = "TIMER_SLACK_STARTED_OVER"

// Now returns the slack of the calling thread. All threads of a program have the same slack
// unless SetThread changed it.
func Now() (time.Duration, error) {
	ns, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0)
	return time.Duration(ns), err
}

// SetThread sets the slack of the calling thread. Threads and processes that the thread
// starts inherit it. The caller must have locked its goroutine to the thread.
func SetThread(slack time.Duration) error {
	if err := unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(slack), 0, 0, 0); err != nil {
		return fmt.Errorf("set the timer slack: %w", err)
	}
	return nil
}

var errAgain = errors.New("the program started over, and its timer slack did not change")

// Set sets the slack of every thread of this program. A thread inherits the slack of the
// thread that creates it, and the runtime creates its monitor before it runs main. Set
// therefore starts the program over, in the same process, with the same arguments and
// environment. It returns when the program has that slack already, and with an error when
// it cannot have it. Call Set at the start of main. 0 changes nothing.
func Set(slack time.Duration) error {
	if slack <= 0 {
		return nil
	}
	_, again := os.LookupEnv(startedOver)
	if err := os.Unsetenv(startedOver); err != nil { // child processes must not inherit it
		return err
	}
	runtime.LockOSThread() // the program inherits the slack of the thread that calls Exec
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
	_ = SetThread(before)
	return fmt.Errorf("start over with another timer slack: %w", err)
}
