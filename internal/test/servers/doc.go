// Package servers gives tests a real MySQL (or MariaDB) and a real Redis.
//
// A real server finds what an embedded one forgives, so no test skips for want
// of one. There are two ways to get a server:
//
//   - MySQL and Redis return the address of one server that all tests of the
//     process share: the one named by PENSTOCK_TEST_MYSQL or
//     PENSTOCK_TEST_REDIS, else one that is started at the first call. Tests
//     share it politely: each has its own database, or its own key prefix. The
//     shared Redis that this package starts knows neither FLUSHALL nor FLUSHDB,
//     for they would empty the keys of a neighbour.
//   - StartMySQL and StartRedis start a server of the test's own, which it may
//     kill, pause, flush and restart. The variables do not change that: a
//     fault is injected only into a server that belongs to the test.
//
// Everything listens on 127.0.0.1 and lives in one temporary folder. Servers
// and folders go away with the test process however it ends: a small shell,
// the janitor, holds the other end of a pipe and cleans up when it closes.
// Nothing runs in the background of the test process, no goroutine and no
// thread, so goroutine-leak checks need no exception for this package. (The
// parent-death signal of Linux is not used: it is sent when the thread that
// started the server ends, which Go does not let a test foresee.)
package servers

// Environment variables that name running servers for the shared addresses.
const (
	EnvMySQL = "PENSTOCK_TEST_MYSQL" // go-sql-driver DSN of a user who may create databases
	EnvRedis = "PENSTOCK_TEST_REDIS" // redis:// URL
)
