// Package importer moves a broker of the older implementation, webhook-broker, into this one: channels, producers
// and consumers with their IDs and tokens, messages with their IDs, and their jobs. The command is broker import
// webhook-broker, the page docs/how-to/move-from-webhook-broker.md.
//
// # What is read
//
// The database of the older implementation (old.go, oldpage.go), in read-only transactions, and its INI file
// (ini.go). Rows are read in pages by their primary key, so memory does not grow with them.
//
// # What is written
//
// Resources by the puts of package durable (resource.go), messages and schedules by publish.Drafter.Submit as each
// way in (message.go), and what became of jobs by durable.Store.Record (outcome.go). A message is addressed to the
// consumers that have a job of it in the old database, and to no other.
//
// # Why a second run imports nothing twice
//
// A message keeps its ID, and the store has one message for an ID (durable, identity.go). A pass (pass.go) asks for
// the IDs of a page first, and reads payloads of the missing ones only. The end of a job is recorded again without
// effect. So there is no file with a position: a run that was killed anywhere is followed by another one.
//
// # Following
//
// A run with Follow (run.go) looks at the rows of the last minutes over and over, and now and then at all of them. A
// job that the old broker ends meanwhile ends here, too. Two things wait for the last run, after the old broker was
// stopped: messages that it has not dispatched yet, which would get their jobs there, and scheduled messages
// (scheduled.go).
//
// A row that cannot be imported is refused with its reason (report.go), and nothing of it is imported: of a message
// with a job that cannot be, no job is. The report has the counts of both sides.
package importer
