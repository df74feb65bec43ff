//go:build unix

package intake

import (
	"errors"
	"net"
	"syscall"
)

// Gone reports whether the client has closed its connection. fasthttp does not report it, so Gone
// peeks at the socket and consumes no byte. A connection without access to its socket counts as
// open.
func Gone(c net.Conn) bool {
	if told, ok := c.(interface{ Gone() bool }); ok { // one in memory: it knows
		return told.Gone()
	}
	sc, ok := c.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return true
	}
	closed := false
	err = raw.Control(func(fd uintptr) {
		var b [1]byte
		n, _, e := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		closed = n == 0 && e == nil || e != nil && !errors.Is(e, syscall.EAGAIN) && !errors.Is(e, syscall.EWOULDBLOCK) &&
			!errors.Is(e, syscall.EINTR)
	})
	return err != nil || closed
}
