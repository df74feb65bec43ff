// Command bench loads a Penstock broker over HTTP, breaks it, and checks that every
// promise was kept. The broker links none of it.
package main

import (
	"os"

	"github.com/penstock-broker/penstock/bench"
	"github.com/penstock-broker/penstock/internal/tool/timerslack"
)

func main() {
	// First of all, because the program starts over with it: the load generator has
	// the timers that the broker has, so that both wait alike.
	_ = timerslack.Set(timerslack.Usual)
	os.Exit(bench.Main(os.Args[1:]))
}
