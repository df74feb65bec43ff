package penstock

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// RunUntilSignal is Run until SIGTERM or SIGINT. The first one stops the worker in order, the second one
// does what Abort does.
func (w *Worker) RunUntilSignal(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, os.Interrupt)
	defer signal.Stop(signals)
	over := make(chan struct{})
	defer close(over)
	go func() {
		for end := stop; ; end = w.Abort {
			select {
			case <-signals:
				end()
			case <-over:
				return
			}
		}
	}()
	return w.Run(ctx)
}
