// Package bench is the program cmd/bench. It loads a broker over HTTP, checks every promise of
// the broker, and measures what the machine allows.
//
// # What is measured
//
// Producers are connections that send messages in a closed loop, or on a schedule (open loop).
// In the open loop a latency counts from the time at which the schedule wants the message sent,
// so a broker that stalls is charged for every message that was due during the stall. Delivery
// latency counts from the same intended time to the first arrival at each consumer. The report
// also has both latencies from the moment of sending. The difference is the time for which a
// message waited for a free connection.
//
// Consumers are push sinks in this process, and pull workers. They and the producers share the
// machine with the broker, so the report contains the CPU time of every process.
//
// A broker at --url must answer within two seconds. At the end, also after a signal, the run deletes
// the producer, the channels and the consumers that it made there. A broker without
// BROKER_ALLOW_DELETE keeps them: the run names them and prints the commands that delete them.
//
// # The ledger
//
// Each message contains run, sequence, intended time and time of sending. The ledger records the
// acknowledged messages, a checksum of each body, and one bit per message and consumer for the
// deliveries. At the end it lists messages that were lost, duplicated, corrupted, delivered
// against a refusal, late, or overtaken by a lower priority. A run that has lost or corrupted a
// message fails, however fast it was.
//
// # The audit
//
// A run with --audit also proves that every delivery was the first and only one and equals the
// published message. It compares bytes instead of checksums, the message ID, the content type,
// the metadata headers and the attempt. It then asks the broker about every message. With
// --payload-from and --passes the bodies come from files, and each is sent once per pass.
//
// # Limits and efficiency
//
// The ceilings of the stages (HTTP, durable insert, outcome rows, fsync, Redis cycles, push) are
// measured with the same client, statements and scripts, each with the CPU time of all processes
// involved. The efficiency of a run is its rate divided by the rate that all cores would reach
// if a message cost only the sum of its stages. Only this part imports the packages durable and
// redisq; everything else uses HTTP.
//
// # What is not measured
//
// Network distance, TLS, and other machines are not measured. All latencies come from one clock.
// Rates of one minute do not predict a day of growing tables.
package bench
