// Package accept takes messages into the store. Submit is the way in that every other one shares:
// it knows neither HTTP nor what a producer writes (package publish). Messages that come at the same
// time share a transaction (group commit), and a message has been stored when its outcome says so.
//
//	submit.go       Submit, Submission: admission, bounds, outcomes
//	admission.go    the bound on what is under way, so that accepting never starves delivering
//	committer.go    group commit: which messages share a transaction, and when it begins
//	commitloop.go   the one loop around a transaction: prepare, store, refresh, again
//	destination.go, recipients.go, judge.go   channel, producer and consumers of a message
//	schedule.go, bulkstep.go, quota.go   schedules and steps of bulks, in the same loop
//	forward.go      messages that the broker makes
package accept
