package presence

import (
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Header is the request header in which a worker says who it is.
const Header = "X-Broker-Worker"

// Bounds of what a worker says. What is longer cannot be read.
const (
	maxHeader  = 4 << 10 // bytes
	maxName    = 128     // bytes
	maxVersion = 64      // bytes
	maxSlots   = 1_000_000
	maxTasks   = 64
	maxTask    = 128 // bytes

	blanks = " \t" // that may stand around a value
)

// A Worker is what a worker says of itself.
type Worker struct {
	Name    string   `json:"n"`
	Version string   `json:"v,omitempty"`
	Slots   int      `json:"s,omitempty"`
	Tasks   []string `json:"t,omitempty"`
}

// Holder is the worker as the lease of a job has it: its name, a semicolon, and its version.
func (w *Worker) Holder() string {
	if w == nil {
		return ""
	}
	return w.Name + ";" + w.Version
}

// Held is the inverse of Holder. Both are empty where the holder is not known.
func Held(holder string) (name, version string) {
	name, version, _ = strings.Cut(holder, ";")
	return name, version
}

// Parse reads the value of Header: a name, and parameters behind semicolons, in any order and case:
// version, slots, and tasks with commas between them. Parameters that it does not know are passed over.
// ok is false where the text cannot be read.
func Parse(text string) (w Worker, ok bool) {
	if len(text) > maxHeader || !utf8.ValidString(text) {
		return w, false
	}
	name, rest, more := strings.Cut(text, ";")
	if w.Name = strings.Trim(name, blanks); !plain(w.Name, maxName) || w.Name == "" {
		return Worker{}, false
	}
	for more {
		var part string
		part, rest, more = strings.Cut(rest, ";")
		if part = strings.Trim(part, blanks); part == "" {
			continue // after the last one
		}
		key, value, _ := strings.Cut(part, "=")
		if !w.set(strings.ToLower(strings.Trim(key, blanks)), unquoted(strings.Trim(value, blanks))) {
			return Worker{}, false
		}
	}
	return w, true
}

// set takes one parameter. It returns false where the value cannot be read.
func (w *Worker) set(key, value string) bool {
	switch key {
	case "version":
		w.Version = value
		return plain(value, maxVersion)
	case "slots":
		n, err := strconv.Atoi(value)
		w.Slots = n
		return err == nil && n >= 0 && n <= maxSlots
	case "tasks":
		w.Tasks = nil
		for task := range strings.SplitSeq(value, ",") {
			if task = strings.Trim(task, blanks); task == "" || slices.Contains(w.Tasks, task) {
				continue
			}
			if w.Tasks = append(w.Tasks, task); !plain(task, maxTask) || len(w.Tasks) > maxTasks {
				return false
			}
		}
	}
	return true
}

// plain reports whether a text is short and has neither control characters nor a bar, which stands
// between the parts of a lease in Redis.
func plain(text string, most int) bool {
	return len(text) <= most && !strings.ContainsFunc(text, func(r rune) bool {
		return r < ' ' || r == '|' || r >= 0x7f && r <= 0x9f
	})
}

func unquoted(value string) string {
	if n := len(value); n >= 2 && value[0] == '"' && value[n-1] == '"' {
		return value[1 : n-1]
	}
	return value
}
