// Package bench is the program cmd/bench: it loads a broker over HTTP, checks every
// promise the broker made, and says what the machine would allow.
//
// # What is measured
//
// Producers are connections that send messages in a closed loop, or on a
// schedule (open loop). In the open loop a latency counts from the time at which
// the schedule wanted the message sent: a broker that stalls is charged for
// everything that should have been sent meanwhile. Delivery latency counts from
// the same intended time to the first arrival at each consumer. Both times from the
// moment of sending stand beside them: where every connection is busy, the rest is
// what messages waited for a free one.
//
// Consumers are push sinks in this process, and pull workers. They share the
// machine with the broker, and so does the load: the CPU time of every process
// is part of the report.
//
// # The ledger
//
// Each message carries run, sequence, intended time and time of sending. The ledger knows what
// was acknowledged, with a checksum of each body, and one bit per message and
// consumer for what arrived. At the end it names what was lost, duplicated,
// corrupted, delivered against a refusal, late, or overtaken by a lower
// priority. A run that lost or corrupted anything fails, however fast it was.
//
// # The audit
//
// A run with --audit proves one thing more: that every delivery was the first and
// only one and equals what was published. It compares bytes instead of checksums,
// the message ID, the content type, the metadata headers and the attempt, then
// asks the broker about every message. With --payload-from and --passes real
// bodies go through, each as often as there are passes.
//
// # Limits and efficiency
//
// The ceilings of the stages (HTTP, durable insert, outcome rows, fsync, Redis
// cycles, push) are measured with the same client, statements and scripts, each
// with the CPU time of all processes involved. The efficiency of a run is its
// rate divided by what all cores could do if a message cost only the sum of its
// stages. Only that part knows the packages durable and redisq; everything else
// speaks HTTP alone.
//
// # What is not measured
//
// Network distance, TLS, and machines other than this one. All latencies come
// from one clock. Rates of one minute say nothing about a day of growing tables.
package bench
