//go:build !unix

package intake

import "net"

// Gone reports whether the client has closed its connection, if it is one in memory. On this platform it
// cannot be determined for others: what a disconnected client waits for goes on.
func Gone(c net.Conn) bool {
	told, ok := c.(interface{ Gone() bool })
	return ok && told.Gone()
}
