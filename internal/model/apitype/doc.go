// Package apitype contains the JSON and the forms of the HTTP API: one struct for each request
// body and each answer, and the table of the routes that use them. It imports nothing of the
// broker, so servers, clients, generators and tests can share it.
//
// The json tags are the members of the wire format, in its order. Package api encodes these
// structs. The packages of hotpath have writers and parsers of their own; their tests hold them
// equal to the structs.
//
// Two spellings exist. Resources and their members are in PascalCase. The members of a problem,
// "code" and "detail" where they occur elsewhere, and "next" are in lower case.
//
// A form is taken as JSON, too, with the members that GET shows of the resource: package api,
// jsonform.go and settle.go.
//
// Links are paths without host. Clients resolve them against the address of the broker.
//
// # Rules
//
// The structs say which members exist. The rules for their values are in these places:
//
//	IDs                         package ident, ValidName
//	names, tokens, callbacks    package api, form.go and consumer.go
//	policy                      package policy, its table of fields
//	priorities                  redisq.MaxPriority
//	metadata headers            package hotpath/metadata
//	sizes of claims, updates    package hotpath/pull, maxClaimed
//	timeouts and delays         pull.MaxIncrementalTimeout
//	size of an answer to pull   package hotpath/pull, answerBytes
//	pages of lists              package api, page.go; jobs of a message: maxInlineJobs
//	attempts of a job           package api, maxAttempts
//	status and code of errors   package problem; docs/errors*.md list the codes
package apitype
