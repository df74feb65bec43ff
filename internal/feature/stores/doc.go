// Package stores spreads the channels of an installation over several MySQL servers (BROKER_MYSQL_DSNS).
//
// A channel is in one store, with its consumers, messages and jobs; which one is said when it is created. For each
// store a process has a whole broker of its own, a Part: a catalogue, a data plane, a fail-safe, queues in Redis. So a
// store that is away takes down its own channels, and no loop waits for it that others need. The store of
// BROKER_MYSQL_DSN has the catalogue of the installation:
//
//   - producers, groups and API tokens are made there, and copied into the other stores with their numbers
//     (follow.go);
//   - the table places says in which store a channel is, and is written before the channel (place.go);
//   - alerts, status events without a reply URL and the audit channel are channels of it.
//
// The Router leads a request about a channel to the part that has it, by the copies of the catalogues in memory
// (router.go). Of an SQS client it knows the access key (keys.go). Any other request that names no channel is about the
// first store, or about the one that its parameter store names.
//
// Numbers of channels and consumers of different stores are different, because each store begins at another one: the
// IDs of alerts and the keys of rates are made of them.
package stores
