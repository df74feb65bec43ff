//go:build !linux

package answer

import "net"

// calm does nothing: the buffers of this kernel are taken as they are.
func calm(net.Conn) {}
