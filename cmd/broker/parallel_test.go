package main

import (
	"strings"
	"sync"
	"testing"
)

// These tests wait more than they compute. With more of them at once two processors are so late that brokers
// lose their leases, and time goes into repeats.
//
// The bound of package testing counts a test no more whose parallel subtests wait, and has those wait behind all
// other tests: the brokers of forty tests ran on, and took a quarter of the processors. So a test keeps its
// place until its subtests are over, and they have places of their own.
var (
	roots = make(chan struct{}, 5) // of tests
	parts = make(chan struct{}, 4) // of their parallel subtests
	// placed has the tests that have a place, by name: a chan struct{}.
	placed sync.Map
)

// parallel is t.Parallel for the tests of this package.
func parallel(t *testing.T) {
	t.Parallel()
	places := roots
	for name := t.Name(); places == roots; {
		end := strings.LastIndexByte(name, '/')
		if end < 0 {
			break
		}
		name = name[:end]
		switch held, _ := placed.Load(name); held {
		case roots:
			places = parts
		case parts: // whose place it shares: it would wait for its own subtests
			return
		}
	}
	places <- struct{}{}
	placed.Store(t.Name(), places)
	t.Cleanup(func() {
		placed.Delete(t.Name())
		<-places
	})
}
