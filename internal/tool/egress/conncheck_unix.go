//go:build unix

package egress

import "syscall"

// quiet reports whether a non-blocking socket is open and has nothing to read.
func quiet(fd uintptr) bool {
	var b [1]byte
	_, err := syscall.Read(int(fd), b[:])
	return err == syscall.EAGAIN || err == syscall.EWOULDBLOCK
}
