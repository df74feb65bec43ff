// Package front is the broker's listeners of HTTP/2 and of TLS, in front of its HTTP/1.1 server.
//
// Each request of HTTP/2 is written as HTTP/1.1 to a connection in memory, whose other end that
// server accepts like one of TCP. So there is one behaviour: routes, limits, answers and errors are
// those of HTTP/1.1. HTTP/1.1 over TLS goes through such a connection as it is, byte by byte.
//
// Go's net/http does the frames of HTTP/2, with its bounds against floods of resets, of SETTINGS, of
// PING and of CONTINUATION. This package bounds what is above that: streams, headers, and the times
// of handshakes and of clients that do not read.
//
//	front.go    the listeners: accept, handshake, which protocol, stop
//	files.go    certificates: read, checked, read again when their files change
//	stream.go   one request of HTTP/2
//	request.go  how it is written as HTTP/1.1
//	answer.go   how its answer goes back
//	pace.go     how slowly a client may take an answer
//	tunnel.go   HTTP/1.1 over TLS
//	pipe.go     a connection in memory
//	inside.go   the end of it that the HTTP/1.1 server has
//	metrics.go  what is counted
package front
