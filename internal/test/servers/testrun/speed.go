//go:build unix

package main

import (
	"cmp"
	"os"
	"strings"

	"github.com/penstock-broker/penstock/internal/test/servers"
)

// roomInMemory is how many bytes must be free for the files of the tests to be in memory. A run of
// all tests has about a quarter of it at its peak.
const roomInMemory = 8 << 30

// filesInMemory puts temporary files into memory if there is room: the folders of the tests and the
// data of servers, also of those that this process starts. A flush to a disk takes most of the time
// of many tests, and proves nothing there: they kill processes, not the machine. What Go builds stays
// on the disk, and so does a MySQL that a test kills or slows down. A TMPDIR of the caller is obeyed.
func filesInMemory() error {
	if os.Getenv("TMPDIR") != "" {
		return nil
	}
	disk := os.TempDir()
	folder := servers.MemoryFolder(roomInMemory)
	if folder == "" {
		return nil
	}
	for name, path := range map[string]string{"GOTMPDIR": disk, servers.EnvDisk: disk, "TMPDIR": folder} {
		if os.Getenv(name) != "" {
			continue
		}
		if err := os.Setenv(name, path); err != nil {
			return err
		}
	}
	return nil
}

// raceOptions returns the environment line with the options of the race detector. By itself it
// lets a program sleep for a second before it ends, and the tests end hundreds of brokers.
func raceOptions() string {
	return strings.TrimSpace("GORACE=atexit_sleep_ms=100 " + os.Getenv("GORACE"))
}

// collectLess returns the environment line that lets the garbage collector run less often, in what
// Go builds and in the tests: their heaps are small. A caller's own GOGC stays.
func collectLess() string { return "GOGC=" + cmp.Or(os.Getenv("GOGC"), "400") }
