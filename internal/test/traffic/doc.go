// Package traffic records what the clients of the tests send and get, for the comparison with openapi.json that the
// module internal/test/contract makes.
//
//	record.go    an exchange, its kind, and the file that a process writes
//	client.go    the seams: the transports of the clients of fasthttp and of net/http
//
// Nothing is recorded unless PENSTOCK_TRAFFIC names a folder. Each process then writes a file of its own there, an
// exchange in JSON a line. Of exchanges of one kind it writes a few: what is compared must not depend on the order of
// the tests, and the record of the same tests must have the same kinds each time.
package traffic
