// Package nats is the sender of nats and tls callbacks: each job of such a consumer is one message to a subject
// of a NATS server, and it is delivered when a stream of JetStream has acknowledged it. It is a row of the table
// of senders of package push, so attempts, retries, dead letters, pauses, rates and metrics are those of every
// push consumer. The broker links it with the build tag nats alone.
//
//	address.go  server and subject of a callback URL
//	login.go    the credentials of a policy, as the server wants them
//	sender.go   the row of the table, and one attempt
//	message.go  the bytes of a message: subject, headers, payload
//	servers.go  the connections, shared by consumers with the same server and credentials
//	connect.go  one connection from the dial to its first use
//	link.go     one connection in use: who writes, who waits for an acknowledgement, how it ends
//	frames.go   what a server says on a connection, read with bounds
//	reply.go    an acknowledgement, or its absence, as the end of an attempt
//
// The protocol is spoken here and not by nats.go, the client of the NATS authors. Callback URLs come from
// strangers, and that client (v1.55.0) trusts its server. It allocates what a message announces, and 2^62 bytes
// are a panic in a goroutine of its own, which ends the process. While a server does not read, a publish waits
// for a lock beyond its deadline. Of NATS the package needs five verbs. nkeys, of the same authors, signs.
//
// The Nats-Msg-Id is made of the ID of the job. An attempt whose end is unknown is repeated with the same one,
// and the stream drops the repetition within its window. The ID of the message, which http consumers see as
// webhook-id, would not do: two consumers of a channel may send to one stream, which would drop the message of
// the second.
package nats
