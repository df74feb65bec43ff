package ui

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// mostPayload is the most bytes of a payload that a page shows, in any form.
const mostPayload = 64 << 10

// The modes of payloads.
const (
	payloadsShown  = "show"
	payloadsKeys   = "keys"
	payloadsHidden = "hide"
)

// mostRules bounds the rules of fields, and mostSteps the names of one.
const mostRules, mostSteps = 100, 32

// A Payloads says what pages show of payloads. The zero value shows all.
type Payloads struct {
	mode   string     // "": show
	fields [][]string // paths of fields that are never shown; "*" is any name, and any place of a list
}

// ParsePayloads reads a setting: show, keys or hide, and paths of fields like $.card.* after commas.
func ParsePayloads(text string) (p Payloads, err error) {
	mode, rest, more := strings.Cut(text, ",")
	if p.mode = strings.TrimSpace(mode); !slices.Contains([]string{payloadsShown, payloadsKeys, payloadsHidden}, p.mode) {
		return p, fmt.Errorf("must begin with show, keys or hide, not %q", cut(p.mode, 40))
	}
	if !more {
		return p, nil
	}
	for path := range strings.SplitSeq(rest, ",") {
		path = strings.TrimSpace(path)
		steps, ok := strings.CutPrefix(path, "$.")
		fields := strings.Split(steps, ".")
		if !ok || slices.Contains(fields, "") || len(fields) > mostSteps || strings.ContainsAny(steps, "[]\"'") {
			return p, fmt.Errorf("must have paths of fields like $.card.* or $.items.*.price, not %q", cut(path, 40))
		}
		if p.fields = append(p.fields, fields); len(p.fields) > mostRules {
			return p, fmt.Errorf("has more than %d paths of fields", mostRules)
		}
	}
	return p, nil
}

// whole reports whether everything of a payload is shown.
func (p *Payloads) whole() bool {
	return p.mode != payloadsKeys && p.mode != payloadsHidden && len(p.fields) == 0
}

// A shownPayload is a payload as a page shows it.
type shownPayload struct {
	Size   int
	Form   string   // json, text or hex; "": nothing is shown
	Forms  []string // those that there are
	Text   string
	Hidden string // why nothing, or not all, is shown
	Cut    bool   // there is more than Text
}

// show returns a payload in a form; "" is the best one. coded says that it is compressed.
func (p *Payloads) show(payload []byte, form string, coded bool) (s shownPayload) {
	s.Size = len(payload)
	switch {
	case p.mode == payloadsHidden:
		s.Hidden = "Payloads are hidden by BROKER_UI_PAYLOADS."
		return s
	case len(payload) == 0:
		return s
	}
	isJSON := !coded && json.Valid(payload)
	if !p.whole() {
		if !isJSON {
			s.Hidden = "BROKER_UI_PAYLOADS hides fields, and this payload is no JSON that has any."
			return s
		}
		if s.Hidden = "BROKER_UI_PAYLOADS hides some fields."; p.mode == payloadsKeys {
			s.Hidden = "BROKER_UI_PAYLOADS hides values."
		}
		s.Forms, s.Form = []string{"json"}, "json"
	} else {
		if isJSON {
			s.Forms = append(s.Forms, "json")
		}
		if readable(payload) {
			s.Forms = append(s.Forms, "text")
		}
		s.Forms = append(s.Forms, "hex")
		if s.Form = s.Forms[0]; slices.Contains(s.Forms, form) {
			s.Form = form
		}
	}
	switch s.Form {
	case "json":
		s.Text, s.Cut = p.indent(payload)
	case "text":
		s.Text, s.Cut = cut(string(payload), mostPayload), len(payload) > mostPayload
	default:
		most := min(len(payload), mostPayload/5) // a byte takes five
		s.Text, s.Cut = hex.Dump(payload[:most]), most < len(payload)
	}
	return s
}

// readable reports whether bytes are a text that a page can show.
func readable(b []byte) bool { return utf8.Valid(b) && bytes.IndexByte(b, 0) < 0 }

// indent writes JSON with a line for each member. Numbers and texts stay as they were sent.
func (p *Payloads) indent(src []byte) (text string, more bool) {
	w := &indenter{src: src, values: p.mode != payloadsKeys}
	err := w.value(0, p.fields)
	return string(w.out), err != nil
}

// errFull ends what is longer than a page shows.
var errFull = errors.New("ui: the payload is longer than a page shows")

// An indenter writes valid JSON anew.
type indenter struct {
	src    []byte
	at     int
	out    []byte
	values bool // those that are not hidden are shown
}

const masked = `"•••"`

// mostIndent is the depth from which on lines are not indented any further.
const mostIndent = 40

func (w *indenter) write(text string) error {
	if len(w.out)+len(text) > mostPayload {
		end := mostPayload - len(w.out)
		for end > 0 && !utf8.RuneStart(text[end]) {
			end--
		}
		w.out = append(w.out, text[:end]...)
		return errFull
	}
	w.out = append(w.out, text...)
	return nil
}

func (w *indenter) line(depth int) error {
	return w.write("\n" + strings.Repeat("  ", min(depth, mostIndent)))
}

// blank passes white space.
func (w *indenter) blank() {
	for w.at < len(w.src) && strings.IndexByte(" \t\r\n", w.src[w.at]) >= 0 {
		w.at++
	}
}

// token takes a text, a number or a word.
func (w *indenter) token() string {
	begin := w.at
	if w.src[w.at] == '"' {
		for w.at++; w.src[w.at] != '"'; w.at++ {
			if w.src[w.at] == '\\' {
				w.at++
			}
		}
		w.at++
		return string(w.src[begin:w.at])
	}
	for w.at < len(w.src) && strings.IndexByte(",]} \t\r\n:", w.src[w.at]) < 0 {
		w.at++
	}
	return string(w.src[begin:w.at])
}

// value writes a value. hidden are the paths of hidden fields, as they go on from here.
func (w *indenter) value(depth int, hidden [][]string) error {
	w.blank()
	switch w.src[w.at] {
	case '{':
		return w.members(depth, hidden, '}')
	case '[':
		return w.members(depth, hidden, ']')
	}
	text := w.token()
	if !w.values {
		text = kindOf(text)
	}
	return w.write(text)
}

// kindOf is what stands for a value in the mode keys.
func kindOf(token string) string {
	switch token[0] {
	case '"':
		return "text"
	case 't', 'f':
		return "true or false"
	case 'n':
		return "null"
	}
	return "number"
}

// members writes an object or a list up to its end.
func (w *indenter) members(depth int, hidden [][]string, end byte) error {
	if err := w.write(string(w.src[w.at])); err != nil {
		return err
	}
	w.at++
	for n := 0; ; n++ {
		if w.blank(); w.src[w.at] == end {
			w.at++
			if n > 0 {
				if err := w.line(depth); err != nil {
					return err
				}
			}
			return w.write(string(end))
		}
		if n > 0 {
			w.at++ // the comma
			w.blank()
			if err := w.write(","); err != nil {
				return err
			}
		}
		if err := w.line(depth + 1); err != nil {
			return err
		}
		if err := w.member(depth+1, hidden, end == '}'); err != nil {
			return err
		}
	}
}

// member writes a member with its name, or without one in a list.
func (w *indenter) member(depth int, hidden [][]string, named bool) error {
	name := "*"
	if named {
		raw := w.token()
		w.blank()
		w.at++ // the colon
		if err := w.write(raw + ": "); err != nil {
			return err
		}
		_ = json.Unmarshal([]byte(raw), &name) // it is valid
	}
	var rest [][]string
	for _, path := range hidden {
		if path[0] != "*" && (!named || path[0] != name) {
			continue
		}
		if len(path) == 1 {
			w.skip()
			return w.write(masked)
		}
		rest = append(rest, path[1:])
	}
	return w.value(depth, rest)
}

// skip passes a value.
func (w *indenter) skip() {
	w.blank()
	for depth := 0; ; {
		switch c := w.src[w.at]; c {
		case '{', '[':
			depth++
			w.at++
		case '}', ']':
			depth--
			w.at++
		case ',', ':', ' ', '\t', '\r', '\n':
			w.at++
			continue
		default:
			w.token()
		}
		if depth == 0 {
			return
		}
	}
}
