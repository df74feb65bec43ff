// Package timerslack increases the timer slack of this program, so that the machine wakes
// up less often.
//
// While any thread of a Go program runs, the runtime's monitor thread wakes up every 20
// microseconds. That interval has no setting (golang.org/issue/18236). Linux adds 50
// microseconds of slack to each of its sleeps. Waking up is expensive in a virtual machine:
// the monitor costs a tenth of the CPU time of a program that mostly waits for sockets and
// stores. With more slack the monitor sleeps longer, and so do threads that search for
// work. docs/decisions/015 has the measurements.
package timerslack

import "time"

// Usual is the slack with which a message costs least. 150 microseconds, 1 millisecond and
// 2 milliseconds cost more or delay messages more. No timer of a broker is shorter.
const Usual = 500 * time.Microsecond

// System is Linux's default timer slack.
const System = 50 * time.Microsecond

// Most is the largest slack that is useful, because timers may be late by the slack.
const Most = 10 * time.Millisecond
