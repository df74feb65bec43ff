// Package bulk makes many messages from one body or file.
//
// A body is stored in chunks before its request is answered; a file is fetched into the same chunks
// afterwards. Both are read from a stream: what comes over the wire, decoded, and without the envelope
// of a form. From then on the store alone has what the bulk needs. One broker at a time owns a bulk:
// it reads rows behind the checkpoint and stores them in steps. A step is one transaction with the
// messages of some rows, the outcomes of the other rows, and the new checkpoint. So each row becomes
// one message, at whatever point a broker is killed. The row of the bulk names the owner by a token and
// a fence.
// Each step demands them, so an owner that was replaced stores nothing more.
//
// An owner that is gone is replaced when its lease ends, after durable.BulkLease. One that stands
// still inside a transaction has the row of the bulk locked; the server closes its connection after
// the same time, which ends the lock.
package bulk
