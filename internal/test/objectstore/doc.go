// Package objectstore holds the tests of the archive with real S3-compatible servers: versitygw, which checks
// signatures, checksums and trailers strictly, and gofakes3. It has no other content.
//
//	servers_test.go  starts the servers on loopback
//	archive_test.go  files of the archive, written, found, read back and probed
//
// It is a module of its own: nothing else here needs these servers.
package objectstore
