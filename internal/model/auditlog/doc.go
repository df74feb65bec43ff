// Package auditlog is the vocabulary of the audit log: who changed what, from where, and the chain of hashes
// over the entries.
//
//   - entry.go: an Entry, its hash, and the check of a chain (Verifier).
//   - deed.go: a Deed, the change that a request is making. It travels in the context of the request from the
//     place where access is decided to the store, which writes the entry in the transaction of the change.
//   - print.go: fingerprints of secrets, the pass of the fail-safe, and the bound of what an entry shows of a resource.
package auditlog
