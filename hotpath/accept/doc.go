// Package accept takes messages into the store. Submit is the way in that every other one shares:
// it knows neither HTTP nor what a producer writes (package publish). Messages that come at the same
// time share a transaction (group commit), and a message has been stored when its outcome says so.
//
//   - Submit: submit.go, write.go (one message of it); the bound on what is under way, so that accepting
//     never starves delivering: admission.go.
//   - Commit: committer.go (which messages share a transaction, and when it begins), commitloop.go (the
//     one loop around a transaction: prepare, store, refresh, again), rejected.go.
//   - Channel, producer and consumers of a message: destination.go, recipients.go, filters.go.
//   - Schedules and steps of bulks, in the same loop: schedule.go, bulkstep.go; their room: quota.go.
//   - What the broker itself sends: forward.go. What was promised before: accepted.go.
//   - What a journal sees of it, where there is one (package standby): gate.go.
package accept
