package answer

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// unsentBytes is how much the kernel keeps of a large answer that it has not sent.
const unsentBytes = 128 << 10

// calm limits what the kernel takes of an answer before the client reads it. By default that is
// several MiB for each connection: memory that counts for a container, and the progress of a client
// would be seen only once the kernel has room again. The setting stays with the connection.
func calm(c net.Conn) {
	sc, ok := c.(syscall.Conn)
	if !ok {
		return
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return // it is closed: the next write says so
	}
	_ = raw.Control(func(fd uintptr) {
		// without it all is slower to be noticed
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, unsentBytes)
	})
}
