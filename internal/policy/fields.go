package policy

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// A field is one setting that a consumer may have.
type field struct {
	name   string // form field, and member of the record
	about  string // for the documentation
	parse  func(p *Policy, text string) error
	format func(p *Policy) string // text that parse reads
}

// fields is every setting there is, in the order in which they are shown.
var fields = []field{
	{
		name: "timeout", about: "a duration from `100ms` to `1h`: the whole exchange of one push attempt",
		parse: func(p *Policy, text string) error {
			d, err := time.ParseDuration(text)
			if err != nil || d < minTimeout || d > maxTimeout {
				return errors.New("must be a duration from 100ms to 1h")
			}
			p.Timeout = d
			return nil
		},
		format: func(p *Policy) string { return short(p.Timeout) },
	},
	{
		name: "maxRetries", about: "0 to 1000: retries after the first attempt",
		parse: func(p *Policy, text string) error {
			n, err := strconv.Atoi(text)
			if err != nil || n < 0 || n > maxMaxRetries || strings.HasPrefix(text, "+") {
				return errors.New("must be a whole number from 0 to 1000")
			}
			p.MaxRetries = n
			return nil
		},
		format: func(p *Policy) string { return strconv.Itoa(p.MaxRetries) },
	},
	{
		name: "backoff", about: "up to 16 durations, `5s,30s,60s`: the waits before the retries; after the list the last one doubles each time. `constant:30s` is a fixed wait",
		parse: func(p *Policy, text string) (err error) {
			b, err := parseBackoff(text)
			if err == nil {
				p.Backoff = b
			}
			return err
		},
		format: func(p *Policy) string { return p.Backoff.String() },
	},
	{
		name: "retryOn", about: "`all`, or a list of codes and classes, `5xx,404`: another answer makes the job a dead letter at once",
		parse: func(p *Policy, text string) error {
			r, err := parseRetryOn(text)
			if err == nil {
				p.RetryOn = r
			}
			return err
		},
		format: func(p *Policy) string { return p.RetryOn.String() },
	},
}

// Bounds of the settings of one consumer.
const (
	minTimeout, maxTimeout = 100 * time.Millisecond, time.Hour
	maxMaxRetries          = 1000
)

// Names returns the names of all fields, as forms have them.
func Names() []string {
	names := make([]string, len(fields))
	for i, f := range fields {
		names[i] = f.name
	}
	return names
}

// A FieldError says which field has a value that cannot be used. Its text never holds
// the value.
type FieldError struct{ Field, Problem string }

func (e *FieldError) Error() string { return e.Field + " " + e.Problem }

// version is the member of a record that names its form.
const version, currentVersion = "v", "1"

// Merge returns the record that results when form fields are laid over a record: an
// empty value goes back to the default of the installation, an absent one keeps the
// value. Members that this program does not know stay. The error is a *FieldError.
func Merge(record string, form map[string]string) (string, error) {
	set := decode(record)
	for _, f := range fields {
		text, ok := form[f.name]
		switch {
		case !ok:
		case text == "":
			delete(set, f.name)
		default:
			var p Policy
			if err := f.parse(&p, text); err != nil {
				return "", &FieldError{Field: f.name, Problem: err.Error()}
			}
			set[f.name] = f.format(&p)
		}
	}
	return encode(set)
}

// A Setting is a field as it is shown.
type Setting struct {
	Name      string // with a capital first letter
	Value     string // effective
	Inherited bool   // not set by the consumer
}

// Show returns the effective settings of a record.
func (b *Book) Show(record string) []Setting {
	set, p := decode(record), b.Of(record)
	out := make([]Setting, len(fields))
	for i, f := range fields {
		_, own := set[f.name]
		out[i] = Setting{Name: strings.ToUpper(f.name[:1]) + f.name[1:], Value: f.format(p), Inherited: !own}
	}
	return out
}

// decode reads a record. One that is no object of texts sets nothing.
func decode(record string) map[string]string {
	set := map[string]string{}
	if record != "" && json.Unmarshal([]byte(record), &set) != nil {
		return map[string]string{}
	}
	delete(set, version)
	return set
}

// encode is the inverse of decode: equal settings have equal texts, and no setting is
// the empty text.
func encode(set map[string]string) (string, error) {
	if len(set) == 0 {
		return "", nil
	}
	set[version] = currentVersion
	text, err := json.Marshal(set) // sorts the members
	if err != nil {
		return "", fmt.Errorf("policy: encode a record: %w", err)
	}
	return string(text), nil
}

// Table returns name and meaning of each field, for the documentation.
func Table() [][2]string {
	out := make([][2]string, 0, len(fields))
	for _, f := range fields {
		out = append(out, [2]string{f.name, f.about})
	}
	return out
}
