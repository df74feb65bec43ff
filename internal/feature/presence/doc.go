// Package presence knows who works for pull consumers: when a consumer was last heard of, and which
// workers it has. A worker says its name in the header X-Broker-Worker.
//
// A contact is an authorised claim, list, move, or renewal of a lease. Each broker keeps the contacts
// that it saw in memory, bounded, and writes those of a consumer to Redis at most once a second, into
// a field of its own in one hash of the consumer; so every broker sees one list. A claim that waits is
// a contact during the whole wait.
//
// Nothing here is promised: a Redis that is wiped, and a broker that dies within the second, forget
// contacts, and the next ones tell again. Which worker has a lease is no part of this package: the
// lease itself says so, see redisq.Lease.
package presence
