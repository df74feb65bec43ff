// Package fleet knows how each broker of an installation is doing, for the page of the brokers: its version, its age,
// its load, and what its journal holds.
//
// Each broker writes a note of itself (note.go) into Redis every five seconds, into a field of its own in one hash, and
// reads those of the others in the same turn (keeper.go), so whoever looks asks nobody. processor_unix.go and
// processor_other.go say how busy its process is.
//
// Nothing here is promised, and nothing depends on it: which brokers live is what the node leases in the store say. A
// Redis that is away or was wiped, and a broker of an older release, leave brokers without a note for a while. The
// fields of brokers that are gone are removed by those that live, and the hash ends with the last of them.
package fleet
