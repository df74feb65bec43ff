//go:build !linux

package bench

import "time"

// napFor blocks for a short time, as precisely as the runtime's timers are.
func napFor(d time.Duration) { time.Sleep(d) }
