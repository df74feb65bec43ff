package console

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Apart returns another file for what stdout or stderr is. The descriptor of f itself never waits for a
// reader afterwards, where it is a pipe or a terminal: the runtime of Go writes the report of a panic
// there, and a process that dies must not wait. Other processes that share the pipe see no change.
// Where the system does not allow that, or f is a socket, Apart returns f.
func Apart(f *os.File) *os.File {
	info, err := f.Stat()
	if err != nil || info.Mode()&(os.ModeNamedPipe|os.ModeCharDevice) == 0 {
		return f
	}
	fd := int(f.Fd())
	own, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return f
	}
	// Opening the pipe again is what gives the descriptor a mode of its own.
	again, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", fd),
		unix.O_WRONLY|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err == nil {
		err = unix.Dup3(again, fd, 0)
		_ = unix.Close(again)
	}
	if err != nil {
		_ = unix.Close(own)
		return f
	}
	return os.NewFile(uintptr(own), f.Name())
}
