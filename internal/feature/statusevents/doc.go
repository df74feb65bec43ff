// Package statusevents tells producers what became of their messages: a producer names the events
// that it wants to hear of (its setting statusEvents), and gets them in batches, as messages with the
// replies to it (package exchange) where it has a reply URL, else on the system channel ~status.
//
// The Recorder writes an event in the transaction of the outcome that it tells of. So an event is
// lost no more than an outcome is. The Collector of the broker that owns the producer moves events
// into a batch, publishes the batch as one message, and removes it. A broker that dies after the
// first step leaves a batch with its ID and body, which the next owner publishes; one that dies
// after the second leaves a batch that is published again under the same message ID, which changes
// nothing. The batch is made once, so a crash never repeats events under another ID. What becomes of
// the message is the work of its channel: retries, dead letters, the pace of a reply URL.
//
// A round takes one batch of each producer in a turn, so the many batches of one delay no other, and
// the batches of a producer are published in their order.
//
// A producer gets at most PerRound batches of BatchEvents events in each Pause. What is beyond
// waits in the store; nothing is dropped. Messages of system channels have no producer, so events
// about events do not exist.
package statusevents
