//go:build linux

package servers

import "time"

// A SlowMySQLServer is a MySQLServer on a disk with a flush time that the test sets.
type SlowMySQLServer struct{ *MySQLServer }

// StartMySQLOnSlowDisk is StartMySQL with a disk that begins fast. It needs a C
// compiler.
func StartMySQLOnSlowDisk(tb TB, extraArgs ...string) *SlowMySQLServer {
	tb.Helper()
	return &SlowMySQLServer{startMySQLServer(tb, extraArgs, slowdisk.build, slowdisk.env())}
}

// Slow makes every flush take d longer from now on, in whole milliseconds, one flush after the
// other.
func (s *SlowMySQLServer) Slow(d time.Duration) {
	report(s.tb, slowdisk.set(s.process.folder.path, d.Milliseconds()))
}
