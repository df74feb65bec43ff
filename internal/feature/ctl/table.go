package ctl

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
)

// A table is a list on its way to people, or to a program: then each row is a line of JSON as soon as it comes.
type table struct {
	s     *session
	w     *tabwriter.Writer
	empty bool
	err   error
}

func (s *session) table(columns ...string) *table {
	t := &table{s: s, empty: true}
	if !s.json {
		t.w = tabwriter.NewWriter(s.Stdout, 0, 0, 2, ' ', 0)
		t.cells(columns)
	}
	return t
}

// row adds a row: object is what a program gets, cells are for people.
func (t *table) row(object any, cells ...string) {
	t.empty = false
	if t.w == nil {
		t.fail(t.s.line(object))
		return
	}
	t.cells(cells)
}

func (t *table) cells(cells []string) {
	for i, c := range cells {
		cells[i] = plain(c)
	}
	_, err := fmt.Fprintln(t.w, strings.TrimRight(strings.Join(cells, "\t"), "\t"))
	t.fail(err)
}

func (t *table) fail(err error) {
	if t.err == nil {
		t.err = err
	}
}

// print prints what is left to print.
func (t *table) print() error {
	if t.w != nil {
		t.fail(t.w.Flush())
	}
	return t.err
}

// plain is a text of a message or a resource as a terminal may get it: a line without control characters.
func plain(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == '\u2028' || r == '\u2029' {
			return ' '
		}
		return r
	}, text)
}

// line prints a value as one line of JSON.
func (s *session) line(v any) error {
	var b bytes.Buffer
	var err error
	if raw, ok := v.(json.RawMessage); ok {
		err = json.Compact(&b, raw)
	} else {
		e := json.NewEncoder(&b)
		e.SetEscapeHTML(false)
		err = e.Encode(v)
	}
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(s.Stdout, strings.TrimSuffix(b.String(), "\n"))
	return err
}

// done says what was done: the object to a program, a sentence to people.
func (s *session) done(object any, format string, args ...any) error {
	if s.json {
		return s.line(object)
	}
	_, err := fmt.Fprintln(s.Stdout, plain(fmt.Sprintf(format, args...)))
	return err
}

// A field is a member of an object.
type field struct {
	name  string
	value json.RawMessage
}

// fieldsOf returns the members of an object in their order.
func fieldsOf(raw json.RawMessage) (all []field, err error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	if _, err := d.Token(); err != nil {
		return nil, err
	}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return nil, err
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return nil, err
		}
		all = append(all, field{fmt.Sprint(name), value})
	}
	return all, nil
}

// text is a member as people read it.
func (f field) text() string {
	var s string
	if json.Unmarshal(f.value, &s) == nil {
		return s
	}
	return string(f.value)
}

// show prints an object: its members in lines, those of skip left out, with what more says of others.
func (s *session) show(raw json.RawMessage, more func(f field) (lines []string, known bool)) error {
	if s.json {
		return s.line(raw)
	}
	all, err := fieldsOf(raw)
	if err != nil {
		return local("the answer of the broker cannot be read: %v", err)
	}
	w := tabwriter.NewWriter(s.Stdout, 0, 0, 2, ' ', 0)
	for _, f := range all {
		lines, known := more(f)
		if !known {
			lines = []string{f.text()}
		}
		for i, line := range lines {
			name := f.name
			if i > 0 {
				name = ""
			}
			fmt.Fprintf(w, "%s\t%s\n", plain(name), plain(line))
		}
	}
	return w.Flush()
}

// yes is a truth as people read it.
func yes(is bool) string {
	if is {
		return "yes"
	}
	return ""
}

// when is a time as people read it, in their zone.
func when(t *time.Time) string {
	if t == nil || t.IsZero() {
		return ""
	}
	return t.Local().Format("2006-01-02 15:04:05")
}

// number is a count that may be unknown.
func number(n *int) string {
	if n == nil {
		return "?"
	}
	return fmt.Sprint(*n)
}
