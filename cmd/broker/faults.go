package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/penstock-broker/penstock/internal/tool/sentence"
)

// faults collect the mistakes of all settings.
type faults struct {
	given map[string]bool // settings of the environment, whatever their values
	wrong map[string]bool // settings with a mistake
	all   []mistake
}

// A mistake is one line for the operator, which begins with the name of a setting.
type mistake struct {
	text  string
	store bool // no store has that address
}

// refuse adds a mistake of a setting.
func (f *faults) refuse(name, format string, args ...any) {
	f.wrong[name] = true
	for i, arg := range args {
		if err, ok := arg.(error); ok {
			args[i] = sentence.Of(err)
		}
	}
	f.all = append(f.all, mistake{text: fmt.Sprintf(format, args...)})
}

// add is refuse with the name at the beginning.
func (f *faults) add(name, format string, args ...any) {
	f.refuse(name, name+" "+format, args...)
}

// addStore is add for the address of a store.
func (f *faults) addStore(name, format string, args ...any) {
	f.add(name, format, args...)
	f.all[len(f.all)-1].store = true
}

// fine reports whether none of the settings has a mistake so far. What two settings say together is
// checked only then.
func (f *faults) fine(names ...string) bool {
	return !slices.ContainsFunc(names, func(name string) bool { return f.wrong[name] })
}

// err returns the mistakes, in the order of the names.
func (f *faults) err() error {
	if len(f.all) == 0 {
		return nil
	}
	slices.SortFunc(f.all, func(a, b mistake) int { return strings.Compare(a.text, b.text) })
	return settingsError(slices.Compact(f.all))
}

// A settingsError is all that is wrong with the settings.
type settingsError []mistake

// Error returns the mistakes, one a line.
func (e settingsError) Error() string {
	lines := make([]string, len(e))
	for i, m := range e {
		lines[i] = m.text
	}
	return strings.Join(lines, "\n")
}

// refuseSettings prints an error of readConfig and returns the exit code. The address of a store that
// no store can have is, alone, a store that cannot be reached.
func refuseSettings(stderr io.Writer, err error) int {
	fmt.Fprintf(stderr, "broker: the settings cannot be used (docs/configuration.md):\n%s\n", sentence.Of(err))
	var all settingsError
	if errors.As(err, &all) && !slices.ContainsFunc(all, func(m mistake) bool { return !m.store }) {
		return exitStore
	}
	return exitUsage
}
