package main

import "github.com/valyala/fasthttp"

// spareDescriptors are reserved for files and connections other than clients and deliveries:
// stores, name lookups, the log.
const spareDescriptors = 256

// maxConnections returns how many clients may be connected at once in a process that may open files
// descriptors and has up to push requests in flight. Clients must not use the descriptors of
// deliveries and stores, because an attempt that cannot open its connection fails. With few
// descriptors clients get half. files is 0 if the limit is unknown.
func maxConnections(files, push int) int {
	if files <= 0 {
		return fasthttp.DefaultConcurrency
	}
	return min(files-min(files/2, push+spareDescriptors), fasthttp.DefaultConcurrency)
}
