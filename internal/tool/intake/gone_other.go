//go:build !unix

package intake

import "net"

// Gone cannot be determined on this platform. What a disconnected client waits for goes on.
func Gone(net.Conn) bool { return false }
