// Command peers measures other brokers beside Penstock: on the same machine, in
// the same minutes, with the same payload, the same number of publishers, one
// consumer and the same ledger.
//
// # What is measured
//
// A subject is a broker under one configuration. Each run of a subject starts
// its servers with empty folders, loads them in a closed loop (a publisher sends
// its next message when the one before was acknowledged), waits until the rest
// is delivered, reconciles, and stops the servers. Runs of different subjects
// alternate, so that a slow minute of the machine hits all of them.
//
// Penstock is measured by `bench run`, as a subprocess, on a MariaDB that
// flushes each commit and a Redis of its own. The peers are measured by this
// program with the identities, payloads, histograms, CPU meter and ledger of that
// same harness; only the client libraries differ. A latency counts from the
// moment of sending to the acknowledgement, or to the arrival at the consumer.
//
// # What is verified
//
// The ledger finds lost, duplicated and corrupted messages. What a consumer did
// not get within the drain must still be counted by the server, or it is lost.
// After the consumer has gone the server must hold nothing else: an
// acknowledgement of the consumer that the server never took would show there.
//
// # Servers
//
// They listen on loopback, on ports found free, with data in a temporary folder
// on a real disk (a flush to a memory file system costs nothing and is refused).
// They are stopped by process ID, and die with this program however it ends.
//
// The program is a module of its own, so that the broker does not carry the
// clients of its peers. It runs on Linux only: it needs /proc.
package main
