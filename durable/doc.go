// Package durable is the only record of truth: every message, every outcome,
// the catalogue of producers, channels and consumers, and every SQL statement
// of the broker. One Store speaks to MySQL 8 or MariaDB from 10.6, or to an
// embedded SQLite database in a folder.
//
// # What is on disk when a call returns
//
// Insert, Record, every Put, Redrive, Revive and SaveWatermarks return nil only after
// the server has answered the commit; with innodb_flush_log_at_trx_commit=1 (and
// sync_binlog=1 where a binary log is kept), or SQLite's synchronous=FULL, that
// means flushed. Warnings tells in words where a server is set weaker than that.
//
// # The message and its jobs
//
// A message row names its audience: the number of consumers that its channel
// had when it was stored. Consumers are never deleted and each has a fixed
// position in its channel, so a message with audience n has jobs for the
// positions 0 to n-1 and no row is needed for a job that waits. A job gets a
// row when it is over (deliveries, dead_jobs) or has left the happy path
// (open_jobs, attempts). Where rows of several kinds exist, deliveries counts
// before dead_jobs and that before open_jobs, so no two tables ever have to
// change in one step for a reader to be right.
//
// # Guards
//
// An insert carries the knowledge it was built from, and the server checks it in
// the same statement: the audience of the channel, the lease of the broker's node
// number and the age of the IDs. Stale knowledge is ErrStale and stores nothing.
// Hence a 201 for a new consumer means that each later message reaches it, and
// no message can appear below the horizon that a reconciler has passed.
//
// # Isolation
//
// READ COMMITTED with one conditional statement per decision; Changes alone reads
// several tables in one snapshot. Rows of a batch are sorted by key. Deadlocks,
// lock waits and broken connections are repeated inside the caller's deadline,
// which is safe because every write here is idempotent or decided by its key.
//
// # Sizes expected
//
// messages and deliveries grow with traffic (hundreds of millions of rows),
// open_jobs, dead_jobs and attempts with failures, all others with the number of
// consumers. No hot table has a secondary index.
package durable
