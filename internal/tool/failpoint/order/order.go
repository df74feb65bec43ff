//go:build unix

// Package order lets a signal kill this process at a failpoint. Only a broker that is built with the
// tag failpoint imports it. The tag changes no other package, so that such a build compiles little.
package order

import (
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"

	"github.com/penstock-broker/penstock/internal/tool/failpoint"
)

// An order is the last order that the process read.
type order struct {
	point string
	left  atomic.Int64
}

func init() {
	path := os.Getenv(failpoint.EnvOrder)
	if path == "" {
		return
	}
	var current atomic.Pointer[order]
	failpoint.Hit = func(point string) {
		if o := current.Load(); o != nil && o.point == point && o.left.Add(-1) == 0 {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {} // the signal is on its way
		}
	}
	told := make(chan os.Signal, 1)
	signal.Notify(told, syscall.SIGUSR2)
	go func() { // lives as long as the process
		for range told {
			text, err := os.ReadFile(path)
			point, count, ok := strings.Cut(strings.TrimSpace(string(text)), ":")
			n, e := strconv.ParseInt(count, 10, 64)
			if err != nil || e != nil || !ok {
				continue
			}
			o := &order{point: point}
			o.left.Store(n)
			current.Store(o)
		}
	}()
}
