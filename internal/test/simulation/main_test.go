package simulation

import (
	"log/slog"
	"os"
	"runtime"
	"testing"

	"github.com/penstock-broker/penstock/internal/test/servers"
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

// storesRoom is the least memory for the folders of stores: a flush costs nothing there.
const storesRoom = 64 << 20

func run(m *testing.M) int {
	if storesDir = servers.MemoryFolder(storesRoom); storesDir == "" {
		storesDir = must(os.MkdirTemp("", "simulation"))
		defer func() { _ = os.RemoveAll(storesDir) }()
	}
	template = must(newTemplate(storesDir))
	return m.Run()
}
