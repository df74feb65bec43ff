//go:build !linux

package timerslack

import "time"

// Now returns 0: this system has no timer slack.
func Now() (time.Duration, error) { return 0, nil }

// Set changes nothing: this system has no timer slack.
func Set(time.Duration) error { return nil }

// SetThread changes nothing: this system has no timer slack.
func SetThread(time.Duration) error { return nil }
