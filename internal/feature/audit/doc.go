// Package audit is what the audit log shows, and where it is told. Package auditlog of internal/model has the entries
// and their chain, durable/audit.go writes them, and api/audit.go says who acts and lists them.
//
//   - portray.go: what an entry shows of a row of the store, without its secrets.
//   - feed.go: the entries as messages on the system channel ~audit, while that has a consumer.
//
// Brokers append one after another, under the lock of the head, which a transaction takes last and holds for three
// statements and its COMMIT. A writer that appends entries after the commit would need another place where a change
// leaves its entry in the same transaction, or a crash between the two would leave a change without an entry.
package audit
