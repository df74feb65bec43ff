// Package chaos is `bench chaos`. It injects faults into every part of a Penstock installation
// under load, and then proves from the journals of the clients and the rows of the store that
// every promise was kept.
//
// # The rig
//
// A campaign has three brokers, its own MySQL or MariaDB and its own Redis (alone, behind
// Sentinel, or a Cluster), a TCP proxy on each link between them, and three client processes: a
// publisher, all push endpoints, and all pull workers. The clients keep journals. They write each
// step to disk before they take it, so the journal of a killed client is complete. The addresses
// that Sentinel and Cluster announce bypass the proxies. With these, faults hit the Redis
// processes instead of the links.
//
// # Clients that die
//
// A fourth client process, the mortals, runs clients that die in the middle of an exchange, each
// connected to a broker without a proxy: see deaths. Victims are processes that are ordinary
// clients until they are killed. The checker compares their bytes: a message that was not sent
// completely must not be stored, an answer that was read is a promise, and everything else is
// uncertain. The death of a client explains no repeat.
//
// # Greedy neighbours
//
// A fifth client process, the neighbours, holds as much as it gets of everything that users share:
// see attacks. What belongs to the neighbours is deleted at the end of the attack. The checker knows
// the ordinary clients only: their promises stay, their refusals are counted, and soon after the
// attack none may come.
//
// # The schedule
//
// The seed decides the time, the kind, the target and the length of each fault. Faults come in
// rounds. A round contains every kind, shuffled, and some steps have two faults at once. The seed
// does not decide the timing of the machine, so a replay repeats the faults but not each of
// their consequences. A build with the tag failpoint can also kill a broker between two of its
// writes.
//
// # An upgrade
//
// With --next the brokers begin as an older release. After a third of the faults their program is
// replaced, one broker after the other, and the first new one changes the tables: see upgrade. Neither
// explains a repeat.
//
// # The verdict
//
// After the load the rig ends all faults and waits until no job is open. The checker then
// compares the answers, the deliveries, the stored rows and the dead-letter lists, and asks each
// broker whether its books balance. A message that was scheduled must not come before its time. Each promise
// of the project has a line in the verdict, and any broken promise makes the exit code 2.
//
// A repeated delivery is explained if the delivery that the consumer had accepted was under way
// during a fault that may cost the broker its knowledge of it: the broker's own death or sleep, a
// loss of Redis's memory, a cut between broker and consumer, the consumer's death. Nothing else
// explains a repeat: not an absent MySQL, not a Redis that is slow, full or disconnected, not an
// orderly restart. The bound on explained repeats is the number of deliveries under way at such
// faults, each counted once for each fault.
//
// One case looks like a repeat but is not one. A pull worker gets the answer to an old claim
// late, because the broker slept or the link between the two was silent. Its lower attempt
// number shows that the claim is old, and its lease has ended.
//
// # Reading a failure
//
// The folder of a campaign with violations is kept, with every journal and the log of each
// process. In it, `violations.txt` lists messages, jobs and times, and `duplicates.txt` lists each
// repeated delivery with its reason.
package chaos
