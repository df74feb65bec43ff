package main

import (
	"errors"
	"slices"
	"strings"
	"sync"

	"github.com/penstock-broker/penstock/internal/feature/journal"
)

// warnings are what operators must know although the broker is ready: signs that its store lacks
// messages that were acknowledged. They begin in capitals, in the log and in /readyz.
type warnings struct {
	mu  sync.Mutex
	all []string
}

// text is what /readyz says; "": nothing.
func (w *warnings) text() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Join(w.all, ". ")
}

// add reports whether a warning is new.
func (w *warnings) add(text string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if slices.Contains(w.all, text) {
		return false
	}
	w.all = append(w.all, text)
	return true
}

// warn logs a warning once.
func (b *broker) warn(text string, args ...any) {
	if b.first != nil {
		b.first.warn("STORE "+b.name+": "+text, args...)
		return
	}
	if b.warnings.add(text) {
		b.log.Error(text, args...)
	}
}

// The signs that brokers on a MySQL server have, beside wentBack of an embedded store.
const (
	otherHistory = "THE STORE IS NOT IN THE STATE THAT REDIS REMEMBERS: MESSAGES THAT WERE ACKNOWLEDGED MAY BE MISSING, " +
		"as after a backup was restored or the database was emptied. The broker begins all scans again. A restart ends " +
		"this warning"
	foreignJournal = "A JOURNAL IN BROKER_DATA_DIR BELONGS TO ANOTHER STORE: ITS MESSAGES ARE NOT IN THIS ONE. " +
		"Start a broker with that store and this folder, or move the folder journal away"
)

// noticeForeign warns of a journal that brokers of another store have written.
func (b *broker) noticeForeign(left func() ([]*journal.Journal, error)) func() ([]*journal.Journal, error) {
	return func() ([]*journal.Journal, error) {
		all, err := left()
		if errors.Is(err, journal.ErrForeign) {
			b.warn(foreignJournal, "folder", b.cfg.DataDir)
		}
		return all, err
	}
}
