// Package apitype contains the JSON and the forms of the HTTP API: one struct for each request
// body and each answer, and the table of the routes that use them. It imports nothing of the
// broker, so servers, clients, generators and tests can share it.
//
// The json tags are the members of the wire format, in its order. Package api encodes these
// structs. Package hotpath has writers and parsers of its own; its tests hold them equal to the
// structs.
//
// Two spellings exist. Resources and their members are in PascalCase. The members of a problem,
// "code" and "detail" where they occur elsewhere, and "next" are in lower case.
//
// Links are paths without host. Clients resolve them against the address of the broker.
package apitype
