package policy

import (
	"fmt"
	"strings"

	"github.com/penstock-broker/penstock/internal/tool/sentence"
)

// A table is the fields of a kind of policy, in the order in which they are shown.
type table[P any] []field[P]

func (t table[P]) names() []string {
	names := make([]string, len(t))
	for i, f := range t {
		names[i] = f.name
	}
	return names
}

// about returns name and meaning of each field.
func (t table[P]) about() [][2]string {
	out := make([][2]string, 0, len(t))
	for _, f := range t {
		out = append(out, [2]string{f.name, f.about})
	}
	return out
}

// lay lays the members of a record over defaults. A value that cannot be read counts as not set.
func (t table[P]) lay(defaults P, set map[string]string) P {
	p := defaults
	for _, f := range t {
		text, ok := set[f.name]
		if !ok {
			continue
		}
		if q := p; f.parse(&q, text) == nil {
			p = q
		}
	}
	return p
}

// merge lays the fields of a form over the members of a record: an empty value removes the member,
// an absent one keeps it. The error is a *FieldError.
func (t table[P]) merge(set, form map[string]string) error {
	for _, f := range t {
		text, ok := form[f.name]
		switch {
		case !ok:
		case text == "":
			delete(set, f.name)
		default:
			var p P
			if err := f.parse(&p, text); err != nil {
				return &FieldError{Field: f.name, Problem: sentence.Of(err)}
			}
			set[f.name] = f.format(&p)
		}
	}
	return nil
}

// show returns the settings of p, of which set are its own.
func (t table[P]) show(p *P, set map[string]string, reveal []string) []Setting {
	out := make([]Setting, len(t))
	for i, f := range t {
		_, own := set[f.name]
		show := f.format
		if f.masked != nil {
			show = f.masked
		}
		for _, name := range reveal {
			if name == f.name {
				show = f.format
			}
		}
		out[i] = Setting{Name: strings.ToUpper(f.name[:1]) + f.name[1:], Value: show(p), Inherited: !own}
	}
	return out
}

// secret reports whether the setting of that name is never shown.
func (t table[P]) secret(name string) bool {
	for _, f := range t {
		if f.masked != nil && strings.EqualFold(f.name, name) {
			return true
		}
	}
	return false
}

// set puts the text of a field into p, or leaves p unchanged. The error says what the field must be.
func (t table[P]) set(p *P, name, text string) error {
	for _, f := range t {
		if f.name == name {
			q := *p
			if err := f.parse(&q, text); err != nil {
				return err
			}
			*p = q
			return nil
		}
	}
	return fmt.Errorf("policy: there is no field %s", name)
}
