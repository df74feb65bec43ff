// Package servers gives tests a real MySQL (or MariaDB) and a real Redis.
//
// A real server finds mistakes that an embedded one hides, so no test is skipped for lack of
// one. There are two ways to get a server:
//
//   - MySQL and Redis return the address of one server that all tests of the
//     process share: the one named by PENSTOCK_TEST_MYSQL or
//     PENSTOCK_TEST_REDIS, otherwise one that is started at the first call. Each
//     test has its own database, or its own key prefix. The shared Redis that this
//     package starts lacks FLUSHALL and FLUSHDB, which would remove the keys of
//     other tests.
//   - StartMySQL and StartRedis start a server for one test, which the test may
//     kill, pause, flush and restart. They ignore the variables: a fault is
//     injected only into a server that belongs to the test.
//
// Everything listens on 127.0.0.1 and lives in one temporary folder. Servers
// and folders are removed whenever the test process ends: a small shell, the
// janitor, has the other end of a pipe and cleans up when the pipe closes.
// Nothing runs in the background of the test process, no goroutine and no
// thread, so goroutine-leak checks need no exception for this package. (The
// parent-death signal of Linux is not used: it is sent when the thread that
// started the server ends, which a Go test cannot control.)
package servers

// Environment variables that name running servers for the shared addresses.
const (
	EnvMySQL = "PENSTOCK_TEST_MYSQL" // go-sql-driver DSN of a user who may create databases
	EnvRedis = "PENSTOCK_TEST_REDIS" // redis:// URL
)

// EnvDisk names the folder on a disk for the MySQL servers of single tests, "" being that of
// temporary files. MariaDB maps a log that is in memory, and then neither writes nor flushes it:
// a test that kills the server or slows its disk would test something else.
const EnvDisk = "PENSTOCK_TEST_DISK"

// EnvServers set to "none" fails each test that asks for a server: a run of tests that need none,
// which are chosen by their names, thus finds a name that does not say so.
const EnvServers = "PENSTOCK_TEST_SERVERS"
