// Package natsserver holds the tests of the sender of nats callbacks with a real NATS server, JetStream on. It has
// no other content.
//
//	server_test.go  starts the server on loopback, stops it and starts it again over the same folder
//	sender_test.go  attempts of the sender: acknowledged, repeated, refused, cut, shared, bounded
//	broker_test.go  a broker with the build tag nats: its consumers, and what it says of itself
//
// It is a module of its own: nothing else here needs the server.
package natsserver
