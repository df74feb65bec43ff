package main

import (
	"io"
	"net"
	"time"
)

// readRaw returns what comes until the other side closes or pauses.
func readRaw(conn net.Conn) string {
	var all []byte
	buf := make([]byte, 64<<10)
	wait := patience // for the first byte
	for {
		_ = conn.SetReadDeadline(time.Now().Add(wait))
		n, err := conn.Read(buf)
		all = append(all, buf[:n]...)
		if err != nil || err == io.EOF {
			return string(all)
		}
		wait = 300 * time.Millisecond
	}
}
