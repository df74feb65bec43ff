// Command contract compares openapi.json with the traffic of the tests:
//
//	contract [-codes] [-forward] FOLDER
//
// FOLDER has the records that package traffic wrote. The command fails for what the traffic has and the document has
// not (forward), unless malformed.txt names it, and for what the document has and the traffic has not (backward),
// unless unseen.txt names it. The traffic is that of package api, and of the tests of cmd/broker that tests.txt names,
// which are against a whole broker. A line of unseen.txt that names something that the traffic has, or that the
// document has not, fails too: the file only becomes shorter. -forward leaves the second direction out, for records of
// some tests. -codes also prints which codes the document names at a route that no answer of the route had; they fail
// nothing.
//
// Of a request that was refused only the answer is compared. Members are compared by the schema that has them, and
// codes once for all routes: which of them a route may answer is compared in the first direction only.
//
//	main.go       the command, and the two comparisons
//	document.go   the document as this command reads it
//	said.go       what the document says, an item each
//	seen.go       what an exchange has, in the same items
//	members.go    members of bodies, by their schemas
//	valid.go      requests and answers against their schemas: libopenapi-validator in strict mode
//	unseen.go     what is in the document and never in traffic, and what is malformed on purpose
//
// It is a module of its own: nothing else here needs the validator.
package main
