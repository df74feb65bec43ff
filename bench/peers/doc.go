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
// flushes each commit and a Redis of its own. This program measures the peers with the
// identities, payloads, histograms, CPU meter and ledger of the same harness; only the client
// libraries differ. A latency counts from the
// moment of sending to the acknowledgement, or to the arrival at the consumer.
//
// # What is verified
//
// The ledger finds lost, duplicated and corrupted messages. A message that does not
// arrive within the drain is lost, unless the server still counts it. After the consumer
// is closed, the server must have no other message; one more would show an
// acknowledgement of the consumer that the server has not processed.
//
// # Clients
//
// `peers clients` compares what users program with: workers and producers of Penstock's clients for
// Python and Node with Celery and BullMQ on a Redis. Each runs the same program but for its import
// (clients/jobs.py, clients/jobs.mjs). A job appends its number to a file at its end, so that jobs
// that were lost, or done again, show when the worker is killed.
//
// # Servers
//
// They listen on free ports of loopback, with data in a temporary folder on a real disk. A
// folder in memory is refused, because a flush there costs nothing. The program stops the
// servers by process ID, and they die with the program in any case.
//
// The program is a module of its own, so that the broker does not carry the
// clients of its peers. It runs on Linux only: it needs /proc.
package main
