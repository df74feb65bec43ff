package policy

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Names returns the names of the fields of a consumer, as forms have them.
func Names() []string { return fields.names() }

// Table returns name and meaning of each field of a consumer, for the documentation.
func Table() [][2]string { return fields.about() }

// Without returns the names of the fields that mean nothing to consumers of a kind.
func Without(kind Kind) (names []string) {
	for _, f := range fields {
		if f.kinds != 0 && f.kinds&kind == 0 {
			names = append(names, f.name)
		}
	}
	return names
}

// A FieldError says which field has a value that cannot be used. Its text never holds
// the value.
type FieldError struct{ Field, Problem string }

func (e *FieldError) Error() string { return e.Field + " " + e.Problem }

// The members of a record beside the fields.
const (
	version, currentVersion = "v", "1"
	previousUntil           = "signingPreviousUntil" // Unix ms until which the previous secret signs
)

// Merge returns the record that results when form fields are laid over a record: an
// empty value goes back to the default of the installation, an absent one keeps the
// value. Members that this program does not know stay. The error is a *FieldError.
//
// A new signing secret makes the old one the previous one, which signs until now plus
// the overlap that is effective over the defaults.
func (b *Book) Merge(record string, form map[string]string, now time.Time) (string, error) {
	set := decode(record)
	old := set["signingSecret"]
	if err := fields.merge(set, form); err != nil {
		return "", err
	}
	b.rotate(set, old, form, now)
	return encode(set)
}

// rotate keeps the replaced signing secret for the overlap.
func (b *Book) rotate(set map[string]string, old string, form map[string]string, now time.Time) {
	secret, previous := set["signingSecret"], set["signingSecretPrevious"]
	_, given := form["signingSecretPrevious"]
	switch {
	case secret == "" && !given:
		delete(set, "signingSecretPrevious")
	case old != "" && secret != old && !given:
		previous = old
		set["signingSecretPrevious"] = old
	case !given:
		return
	}
	if _, ok := set["signingSecretPrevious"]; !ok || previous == "" {
		delete(set, previousUntil)
		return
	}
	p := b.resolve(set)
	set[previousUntil] = strconv.FormatInt(now.Add(p.SigningOverlap).UnixMilli(), 10)
}

// A Setting is a field as it is shown.
type Setting struct {
	Name      string // with a capital first letter
	Value     string // effective; secrets are masked
	Inherited bool   // not set by the consumer
}

// Masked reports whether a text ends as one that is shown instead of a secret.
func Masked(text string) bool { return strings.HasSuffix(text, mask) }

// Masks reports whether a text is what is shown of a secret of this setting, and no secret itself.
func (s Setting) Masks(text string) bool {
	_, rest, _ := strings.Cut(text, " ")
	return (text == secretPrefix+mask || rest == mask) && (fields.secret(s.Name) || senderFields.secret(s.Name))
}

// Show returns the effective settings of the record of a push consumer, or of a pull consumer, whose
// timeout is the length of its leases. The secrets of the named fields are not masked.
func (b *Book) Show(record string, pull bool, reveal ...string) []Setting {
	p := b.Of(record)
	if pull && p.Lease != 0 {
		leased := *p
		leased.Timeout = p.Lease
		p = &leased
	}
	return fields.show(p, decode(record), reveal)
}

// Same reports whether the text of a field is what a record has in force anyway.
func (b *Book) Same(record, name, text string) bool {
	for _, s := range b.Show(record, false) {
		if strings.EqualFold(s.Name, name) {
			return s.Value == text
		}
	}
	return false
}

// Changed returns the names of the fields that two records set to other values, sorted.
func Changed(was, is string) (names []string) {
	old, now := decode(was), decode(is)
	for name, text := range now {
		if before, set := old[name]; name != previousUntil && (!set || before != text) {
			names = append(names, name)
		}
	}
	for name := range old {
		if _, set := now[name]; !set && name != previousUntil {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
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
