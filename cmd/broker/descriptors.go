package main

import "github.com/valyala/fasthttp"

// spareDescriptors are for what is neither a client nor a delivery: stores,
// name lookups, the log.
const spareDescriptors = 256

// maxConnections returns how many clients may be connected at once in a process
// that may open files descriptors and pushes up to push requests at a time: a
// crowd of clients must not take the descriptors of deliveries and stores, for
// an attempt that cannot open its connection is a failed one. Where there are
// few, clients get half. files of 0 is not known.
func maxConnections(files, push int) int {
	if files <= 0 {
		return fasthttp.DefaultConcurrency
	}
	return min(files-min(files/2, push+spareDescriptors), fasthttp.DefaultConcurrency)
}
