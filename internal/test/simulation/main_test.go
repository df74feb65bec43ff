package simulation

import (
	"log/slog"
	"os"
	"runtime"
	"testing"
)

// One processor makes a run nearly deterministic: of goroutines that may go on at
// the same moment the scheduler takes the same one.
func TestMain(m *testing.M) {
	runtime.GOMAXPROCS(1)
	slog.SetDefault(slog.New(slog.DiscardHandler))
	os.Exit(m.Run())
}
