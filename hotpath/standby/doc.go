// Package standby is the journal beside the store: it takes messages of channels with ack=journal for
// which the store is too slow or fails, and stores them later. A broker without a journal has none of
// it. It stands above package accept, which knows of it only a gate and a watch.
//
// A message under way has a fallback, which decides whether the store or the journal has it: from the
// moment in which the journal takes it, the committer gives it no ID any more. So the store has it
// under the last ID that was tried or not at all, and the journal knows that ID. A crash between the
// flush of the journal and the store leaves the message in the journal, where the next start finds
// it; one between the store and the receipt leaves it in both, and the drain finds it stored.
//
//   - On the way in: standby.go (which journal this broker writes, and what is on its way there),
//     submission.go (the store within a budget, then the journal), fallback.go (one message of it),
//     budget.go (the timer of all budgets), health.go (how the store is doing), journalled.go (which
//     messages are in a journal, for whoever asks).
//   - On the way out: journals.go (journals that are adopted, drained and closed), drain.go and drainedentry.go
//     (the messages of one journal into the store, each once).
package standby
