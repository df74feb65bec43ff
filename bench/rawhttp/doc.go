// Package rawhttp is an HTTP/1.1 client for load generation: it sends request
// bytes that the caller has built and reads just enough of the answer. It costs
// about 10 microseconds per round trip, system calls included, so that what is
// measured is the server.
//
// It is not a client for the open Internet: no TLS, no proxies, no redirects, no
// cookies, no retries. It never sends a request twice.
package rawhttp
