// Package publish is what a producer sends: the routes of producers, and the drafts that they fill.
// Whatever comes ends in Drafter.Submit, the whole way in, and from there in package accept. A way in
// without HTTP/1.1 is a reader of drafts and a writer of what Wait has made of them.
//
//	property.go     the table of properties of a message: header, member, column, how it is read
//	draft.go        Draft, Defaults, Drafter: a message on its way in
//	sent.go         Submit and Wait: drafts into the store
//	publish.go      the route of one message; request.go: the one that waits for the response
//	batchpublish.go, batchread.go, batchanswers.go   the route of many; linesource.go and arraysource.go:
//	                their text, linereader.go: its JSON
//	bulkrow.go      rows of bulks; reschedule.go: changes of schedules
//	event.go, coding.go, signature.go, connection.go   CloudEvents, content codings, signed bodies, wires
//	headers.go, consumers.go, identity.go, payload.go, times.go, ttl.go, ...   one property each
//	receipt.go      the route of receipts of the journal, and what an acknowledgement promises
//	sender.go, paused.go   who may send, and when not
package publish
