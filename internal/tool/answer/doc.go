// Package answer bounds what large answers hold of the memory of a broker, on every route.
//
// An answer of up to Small bytes is built and written as one piece, and costs nothing here. A
// larger one is counted in the bound of the process from the moment at which its rows are read
// until its last byte is written, under the key of whoever asked. Beyond the share of the key it is
// refused with 503 overloaded before anything of it is written. Under pressure the answer that
// moves slowest is ended first.
//
// A Text holds a large payload once, as it came from the store, and escapes it piece by piece while
// it is written. How slowly a client may read is decided by the connection: see api.Listen.
package answer
