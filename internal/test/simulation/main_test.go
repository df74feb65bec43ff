package simulation

import (
	"log/slog"
	"os"
	"runtime"
	"testing"
)

var (
	storesDir string // of the folders of all stores and journals
	template  []byte // of the database of a store
)

// One processor makes a run nearly deterministic: of goroutines that may go on at
// the same moment the scheduler takes the same one.
func TestMain(m *testing.M) {
	runtime.GOMAXPROCS(1)
	slog.SetDefault(slog.New(slog.DiscardHandler))
	os.Exit(run(m))
}

// memoryDir is a file system in memory, where the system has one: there a flush costs nothing.
const memoryDir = "/dev/shm"

func run(m *testing.M) int {
	parent := ""
	if _, err := os.Stat(memoryDir); err == nil {
		parent = memoryDir
	}
	storesDir = must(os.MkdirTemp(parent, "simulation"))
	defer func() { _ = os.RemoveAll(storesDir) }()
	template = must(newTemplate(storesDir))
	return m.Run()
}
