// Package archive keeps messages outside the store before retention removes them.
//
// The reaper writes the messages of a channel that are over into a File, seals it, and only then removes
// them from the store. A file is a folder of two: messages.jsonl.zst, a line of JSON for each message, as
// zstd; and manifest.json with their number, the first and the last ID, the channel, the period, and the
// SHA-256 of messages.jsonl.zst. Sealing flushes both, reads the messages back from the disk, counts and
// compares them, and gives the folder its name last. So a folder with a name is whole, whatever crashes.
//
// A crash, or an error, leaves a folder whose name begins with "+partial-": nothing of it is removed from
// the store. A crash between sealing and removal leaves messages that are archived and stored; the next
// round archives them again. So an archive may have a message twice, and never lacks one that retention has
// removed. A message whose jobs have changed between the two, by a redrive for instance, stays.
//
// A Bucket in an S3-compatible store (S3) has the same two objects below a key of the same form. The file is
// written on the local disk first, in the spool, and is uploaded when it is sealed: the messages, which are read
// back and compared, and then the manifest. So a manifest that is there is one of a whole file, and messages
// without a manifest are no part of the archive.
//
// One broker archives a channel: the one that looks after it. Where two believe so for a moment, each
// writes a file of its own.
//
// record.go is a line, file.go what is written, manifest.go what stands beside it, place.go where files are
// put, bucket.go the same in a store, with its probe, and s3.go the store itself; source.go is where files are
// read from, a disk or a store, read.go how they are read, and list.go, grep.go and restore.go are the commands
// of broker archive.
package archive
