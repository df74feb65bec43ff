//go:build unix

package pull

import (
	"errors"
	"net"
	"syscall"
)

// gone reports whether the client has closed its connection. fasthttp does not
// tell, so the socket is asked, without taking a byte from it. A connection that
// cannot be asked counts as there.
func gone(c net.Conn) bool {
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
		closed = n == 0 && e == nil || e != nil && !errors.Is(e, syscall.EAGAIN) && !errors.Is(e, syscall.EWOULDBLOCK) && !errors.Is(e, syscall.EINTR)
	})
	return err != nil || closed
}
