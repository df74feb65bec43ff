// Package hostile is a broker that misbehaves. It speaks the part of the HTTP API that clients use, keeps
// everything in memory, and does to requests what a test asks for: it is slow, drips, refuses, breaks
// connections before or after it has taken a request, answers nonsense, loses leases, has another time.
// It records what clients send, and notes what no client may send.
//
// It is no model of the broker: a client that works here and not with the real one has found a mistake of
// this package. internal/test/clients has the table of what clients have to do.
package hostile
