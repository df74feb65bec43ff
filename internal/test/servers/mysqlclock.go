//go:build linux

package servers

import "time"

// A ClockedMySQLServer is a MySQLServer whose wall clock the test sets.
type ClockedMySQLServer struct{ *MySQLServer }

// StartMySQLClocked is StartMySQL with a clock that begins right. It needs a C compiler.
func StartMySQLClocked(tb TB, extraArgs ...string) *ClockedMySQLServer {
	tb.Helper()
	return &ClockedMySQLServer{startMySQLServer(tb, extraArgs, wallclock.build, wallclock.env())}
}

// Jump sets the clock to by from that of this machine, in whole seconds, at once.
func (s *ClockedMySQLServer) Jump(by time.Duration) {
	report(s.tb, wallclock.set(s.process.folder.path, int64(by/time.Second)))
}
