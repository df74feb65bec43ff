// Package clients tries the clients in the folder clients, and those of others, against real
// brokers: their own suites, their packages installed into a clean place, their pages, and one table
// of what each has to do against a broker that misbehaves. Each language has a file here.
//
// The tests need Python and Node, which scripts/toolchains.sh installs.
package clients
