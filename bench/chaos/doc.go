// Package chaos is `bench chaos`: it breaks everything that a Penstock
// installation stands on, under load, and then proves from the logs of the
// outside and the rows of the store that every promise was kept.
//
// # The rig
//
// A campaign has three brokers, a MySQL or MariaDB and a Redis of its own
// (alone, behind Sentinel, or a Cluster), a TCP proxy on each link between
// them, and three more processes: one that publishes, one that is every push
// endpoint, one that is every pull worker. Those keep journals: what they are
// about to do is on disk before they do it, so one that is killed leaves no
// doubt behind. The addresses that Sentinel and Cluster announce bypass
// proxies; there the faults hit the Redis processes instead.
//
// # Clients that die
//
// One more process, the mortals, is made of clients that end in the middle of something, each straight at a
// broker and byte by byte: see deaths. Victims are processes that are ordinary clients
// until they are killed. The checker takes what they have sent and read for what it is: what was not
// sent whole must not be stored, an answer that was read is a promise, and anything
// else is in doubt. The death of a client explains no repeat.
//
// # The schedule
//
// The seed decides which fault comes when, to whom and for how long. Faults come
// in rounds that contain every kind, shuffled; now and then two at once. The
// seed does not decide what the machine does meanwhile, so a replay repeats the
// blows and not each consequence. A build with the tag failpoint can also kill
// a broker between two of its writes.
//
// # The verdict
//
// After the load everything is made whole and the rig waits until no job is
// open. Then the checker compares what was answered, what arrived, what is
// stored and what the dead-letter lists say; each promise of the project has a
// line in the verdict, and any that is broken makes the exit code 2.
//
// A repeated delivery counts as explained when the delivery that the consumer had answered
// with success was under way while a fault was on that may cost the broker its
// knowledge of it: the broker's own death or sleep, the loss of Redis's memory, a
// cut between broker and consumer, the consumer's death. Nothing else explains one:
// not MySQL being away, not a Redis that is slow, full or cut off, not a polite
// restart. One thing looks like a repeat and is none: a pull worker gets the answer
// to an old claim late, as its lower attempt number shows, because the broker slept
// or the link between the two was silent; its lease is over. The bound is the number of deliveries that were under way at such
// faults, each counted once for each fault.
//
// # Reading a failure
//
// The folder of a campaign with violations is kept, with every journal and the
// log of each process; `violations.txt` in it names messages, jobs and times, `duplicates.txt`
// each repeated delivery with its reason.
package chaos
