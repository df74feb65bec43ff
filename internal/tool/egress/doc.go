// Package egress is the only way out: it decides which addresses a callback may
// reach and sends the one POST of a delivery attempt.
//
// A Policy is asked twice. When a callback is registered, CheckURL tells the
// person at once that it can never work. When a connection is made, the address
// that the name resolved to is checked again, and the checked address itself is
// dialled: a name that changes its answer between the two gains nothing.
// Proxies named in the environment are ignored. A Rule says which policy a request
// follows, by who chose its URL, and whether it may reach this process itself.
//
// A Client makes exactly one HTTP request per Post that is processed: it follows no redirect,
// repeats nothing on its own and decompresses nothing. One deadline covers name
// lookup, connect, TLS, writing, headers and body. The answer's status decides;
// of its body at most 64 KiB is read.
//
// HTTP/1.1 uses the request and response codec of fasthttp over connections kept
// here, not fasthttp.HostClient: that client cannot tell a request that never
// left from one that may have arrived, reuses a connection that the consumer
// has already closed (a failed delivery for every consumer whose keep-alive is
// shorter than that of the broker, Node.js has 5 s), and sleeps in one goroutine per host.
// HTTP/2 uses net/http, with prior knowledge on http URLs and ALPN on https. What the consumer
// refused unread is sent again, which is no repetition: RFC 9113 promises that it was not processed.
//
// Dial and Secure are connections to servers of other protocols, under the same rules.
package egress
