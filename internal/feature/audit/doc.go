// Package audit is what the audit log shows, and where it is told. Package auditlog of internal/model has the entries
// and their chain, durable/audit.go writes them, and api/audit.go says who acts and lists them.
//
//   - portray.go: what an entry shows of a row of the store, without its secrets.
//   - feed.go: the entries as messages on the system channel ~audit, while that has a consumer.
package audit
