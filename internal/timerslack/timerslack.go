// Package timerslack makes the timers of this program less exact, so that the
// machine is woken less often.
//
// While any of its threads runs, the Go runtime looks after them every 20
// microseconds, from a thread that sleeps in between, and that tick cannot be set
// (golang.org/issue/18236). Linux adds 50 microseconds of slack to such a sleep.
// Where waking up is dear, as in a virtual machine, that monitor costs a tenth of
// the CPU time of a program that mostly waits for sockets and stores. With more
// slack it sleeps longer, and so do the short waits of threads that look for work.
// docs/decisions/015 has the measurements.
package timerslack

import "time"

// Usual is the slack with which a message cost least: 150 microseconds, 1 and 2
// milliseconds cost more or delayed more. Nothing in a broker waits for a shorter
// time than that on purpose.
const Usual = 500 * time.Microsecond

// System is the slack that Linux gives a program of which nobody wants another one.
const System = 50 * time.Microsecond

// Most is the largest slack that makes sense: timers would be late by as much.
const Most = 10 * time.Millisecond
