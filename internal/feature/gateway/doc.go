// Package gateway demands a signature of every request, as the gateway authentication of the older implementation
// does: X-Broker-Signature, see package signed, with one secret for all clients. Tokens are checked as well. Paths
// with certain beginnings, such as those of probes, need none.
//
// The body of a request is read before anything looks at it, up to the largest payload, so a stream of lines or a
// bulk is no larger than that here. It is counted among the bodies of the broker until the request is handled; a
// batch, which is answered as its lines are read, goes on with it.
//
// Files: gateway.go.
package gateway
