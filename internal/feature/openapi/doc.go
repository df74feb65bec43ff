// Package openapi has the description of the API in OpenAPI 3.1 and the pages of reference that are made of it. A
// broker serves openapi.json at /openapi.json, and the pages at /docs, /docs/try and /docs/errors.
//
//	document.go   what the pages show of openapi.json
//	page.go       /docs and /docs/errors
//	search.go     /docs?q=, a search in names and descriptions
//	try.go        /docs/try, a form for each route; its script is pages/try.js
//	openapi.go    the files that the routes serve
//
// Nobody writes openapi.json by hand. The program in the folder generate makes it, with make openapi, and beside it
// the same in gzip, which the binary contains. It takes what is there already:
//
//	routes, their access, headers and parameters   the table of package api
//	bodies, their members and what these mean       package apitype, its structs and their comments
//	codes of errors, with when they are answered   the tables of docs/errors*.md, which a test compares with the sources
//	area of a route, link to its section            docs/routes.md
//	examples of answers                             api/testdata/answers.txt, the stored answers of the tests
//	all else: parameters, headers, codes by route   describe.go beside the program
//
// A test of that program fails where the committed file is another one than the program makes, and where a
// description is missing or describes nothing. The tests of package api compare each answer that they get with the
// document.
//
// What OpenAPI has no word for stands in members of our own:
//
//	x-access   the kind of tokens that a route asks for, as in docs/api.md
//	x-codes    of the document: all codes; of an operation: those of its area. The others are of every route
//	x-common-headers   of the document: headers of requests that every route takes, most of them without effect
//	x-lines    the schema of one line of a body in NDJSON
package openapi
