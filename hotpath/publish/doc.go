// Package publish is what a producer sends: the routes of producers, and the drafts that they fill.
// Whatever comes ends in Drafter.Submit, the whole way in, and from there in package accept. A way in
// without HTTP/1.1 is a reader of drafts and a writer of what Wait has made of them.
//
//   - A draft: property.go (the table of all properties: header, member, column, how each is read),
//     draft.go (Draft, Defaults, Drafter), sent.go (Submit and Wait).
//   - A property each: payload.go, contenttype.go, coding.go, headers.go, identity.go, priority.go,
//     ttl.go, orderingkey.go, task.go, consumers.go, times.go.
//   - The route of one message: publish.go; with CloudEvents event.go, signed signature.go. The one that
//     waits for the response: request.go. Who may send, and when not: sender.go, paused.go,
//     rate.go.
//   - The route of many: batchpublish.go, batchread.go, batchanswers.go; the text of lines and events
//     linesource.go and arraysource.go, their JSON linereader.go, their connection connection.go.
//   - Rows of bulks: bulkrow.go. Other protocols: door.go. Changes of schedules: reschedule.go.
//   - What an acknowledgement promises, and the receipts of the journal: receipt.go.
package publish
