// Package durable is the only record of truth. It stores messages, outcomes and the
// catalogue of producers, channels and consumers, and it has every SQL statement of the
// broker. A Store uses MySQL 8, MariaDB 10.6 or later, or an embedded SQLite database in a
// folder.
//
// # What is on disk when a call returns
//
// Insert, Record, every Put, Redrive, Reopen and SaveWatermarks return nil only after the
// server has answered the commit. The data is then flushed to disk, given
// innodb_flush_log_at_trx_commit=1 (and sync_binlog=1 with a binary log) or SQLite's
// synchronous=FULL. Warnings returns a sentence for each weaker setting of a server.
//
// # The message and its jobs
//
// A message row contains its audience: the number of consumers that its channel had when
// the message was stored. Each consumer has a fixed position in its channel, which is never
// given away again. A message has a job for each position below its audience, unless it is
// addressed to other consumers, a filter refused it, or the consumer was deleted before; see
// concerns.go. A waiting job needs no row. A job gets a row when it is over (deliveries,
// dead_jobs), has failed or was redriven (open_jobs, attempts). If a job has rows in several
// tables, deliveries outranks dead_jobs, and dead_jobs outranks open_jobs. Readers are therefore
// correct even between changes of two tables.
//
// # Guards
//
// An insert depends on three facts: the audience and the shape of the channel, the lease of
// the broker's node number, and the age of the IDs. The server checks them in the same statement.
// If one is stale, the insert returns ErrStale and stores nothing. After the 201 for a new
// consumer, every later message therefore reaches it, and no message appears behind the scan of a
// reconciler.
//
// # Isolation
//
// Transactions are READ COMMITTED, and each decision is one conditional statement. Only
// Changes reads several tables in one snapshot. Batches are sorted by key. After a deadlock,
// a lock wait timeout or a broken connection the package repeats the work until the caller's
// deadline. That is safe because every write is idempotent or decided by its key.
//
// # Sizes expected
//
// messages, message_keys, prioritised and deliveries grow with traffic (hundreds of millions
// of rows), open_jobs, dead_jobs and attempts with failures, history with time up to a bound for
// each active consumer, all other tables with the number of producers, channels, consumers and
// brokers. Of the tables that grow with traffic only
// ordered, idempotency_keys, scheduled and exchanges have a secondary index.
//
// # Where to find what
//
// The vocabulary is in types.go (errors, resources, messages), jobtypes.go (jobs, attempts,
// outcomes) and generation.go (replays).
//
//   - A new column: the method columns of its row, a migration, and the statements and the tables in
//     testdata, which tests write (columns.go, statement.go, statements_test.go, tables_test.go).
//   - Statements: columns.go (lists of columns, rows), statement.go (texts for both dialects),
//     query.go (run, repeat), errors.go (what may be repeated), text.go (what is cut).
//   - The store: store.go, mysql.go, server.go (which servers may have it), session.go, galera.go
//     (several servers that take writes), sqlite.go, backup.go, restore.go, survey.go (a look that
//     changes nothing) and rights.go, migrate.go, clock.go, history.go, node.go, setting.go,
//     replicated.go, proof.go.
//   - The audit log, which each change of somebody who manages the broker ends with: audit.go.
//   - The catalogue: catalogue.go (the one put), producer.go, channel.go, group.go, consumer.go, changes.go
//     (what brokers read), state.go, failures.go, hold.go, pace.go, delete.go, ending.go, alert.go,
//     alarm.go (alerts that open and end), rhythm.go (silent channels), sqskey.go (access keys of
//     SQS clients), apitoken.go, secret.go (shared by all brokers), vault.go (what is encrypted at rest),
//     reencrypt.go. Of several stores: place.go (which one has a channel) and adopt.go (what all of them have).
//   - Which jobs a message has: concerns.go, positions.go, leaveout.go.
//   - A message: headers.go, identity.go, terms.go, entry.go (what makes a repeat), insert.go (the
//     way of a batch), guard.go, insert_mysql.go, insert_text.go and literal.go (the texts),
//     insert_sqlite.go, original.go, order.go, receipt.go, message.go (reads).
//   - The end of a job: outcome.go, attempt.go, job.go, jobtable.go, dead.go, disposal.go,
//     growth.go, step.go and stepsource.go (the timeline), status.go (events for producers),
//     keptlease.go, jobrow.go, hasten.go (delays that end early), tasks.go.
//   - Dead letters by cause: deadgroup.go, deadselect.go, redriving.go.
//   - What people ask: facts.go (the last attempts), plight.go (why a job waits), overview.go,
//     historyrow.go, historymerge.go and historymark.go (what brokers counted, and what happened).
//   - Responses: exchange.go, exchangework.go, awaiting.go.
//   - Scans and books: scan.go, scanover.go, watermark.go, bookrow.go, books.go, backlog.go,
//     stored.go, stray.go.
//   - What ends by its age: expiring.go, purge.go, purgepage.go; by a limit of its channel: keeping.go;
//     attempts by their own age: oldattempts.go.
//   - Schedules: scheduled.go, schedulepast.go, dueline.go, dispatch.go, reschedule.go, schedulelist.go.
//   - Bulks: bulk.go, bulkwork.go, bulkstep.go, bulklist.go, bulksweep.go.
//   - Replays: replay.go.
package durable
