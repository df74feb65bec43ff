// Package outbox publishes the rows that programs add to a table of their own database, in the transaction
// with what they are about (a transactional outbox).
//
// A program inserts a row for each message; penstock.outbox of the Python client does it, and prints the
// table. The command broker outbox runs a Relay: it reads rows in the order of their IDs, publishes them and
// deletes those that the broker has. The message ID of a row is outbox:{table}:{id}, unless the row names one.
// So a message is stored once, whatever dies when: a row whose relay died between the publish and the delete is
// published again with the same ID, and the broker answers that it has it. Several relays side by side are
// safe for the same reason; MySQL and PostgreSQL share
// the rows out to them by SKIP LOCKED.
//
// A row that the broker refuses stays, with the error, and is tried again later and later: rows behind it do
// not wait for it.
package outbox
