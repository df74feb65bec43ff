package ui

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/penstock-broker/penstock/internal/tool/quantity"
)

// A search is of words with blanks between them; a text in double quotes is one word, or a part of one, and \" is a
// quote itself. Words like state:dead and age>1h are terms. Where there is none, the search is for an ID or a name.

// Terms are what a search asks for of messages, or of jobs: all of it must hold.
type terms struct {
	channel, consumer, producer string    // IDs; "": any
	state                       string    // of the job for the consumer, lower case; "": any
	payload                     string    // a text in the payload
	fault                       string    // a text in what the last failure of the job said
	from, to                    time.Time // of the message; zero: no bound
}

// A term is one that a search may have.
type term struct {
	Name, Means string
	Example     string
}

// knownTerms are those that there are, as the page of the search lists them.
var knownTerms = []term{
	{"channel:", "of this channel", "channel:orders"},
	{"consumer:", "with a job for this consumer; also channel/consumer", "consumer:billing"},
	{"state:", "whose job for the consumer is queued, delayed, inflight, delivered or dead", "state:dead"},
	{"error:", "whose job failed with this text; without a state, of the dead letters", "error:timeout"},
	{"payload:", "with this text in the payload; case counts", `payload:"order 17"`},
	{"producer:", "of this producer", "producer:shop"},
	{"age>, age<", "older or younger than this", "age>1h"},
}

// states are those of a job, as the API lists them.
var states = []string{"queued", "delayed", "inflight", "delivered", "dead"}

// Why a search cannot be read.
const (
	refusedQuote = "A text in quotes has no end."
	refusedState = "state: is queued, delayed, inflight, delivered or dead."
	refusedOver  = "What is delivered has no error: error: goes with the other states."
	refusedTwo   = "channel: and consumer: name two channels."
)

// A word is one of a search.
type word struct {
	text   string
	quoted bool // it begins with a quote, so it is no term
}

// wordsOf splits a search at its blanks.
func wordsOf(q string) (out []word, refused string) {
	inside, open, escaped := false, false, false // a quoted text, a word, a character after a backslash
	var w word
	for at, r := range q {
		switch {
		case !escaped && r == '\\' && strings.HasPrefix(q[at+1:], `"`):
			escaped = true
		case escaped:
			w.text, open, escaped = w.text+string(r), true, false
		case r == '"':
			w.quoted = w.quoted || !open
			inside, open = !inside, true
		case !inside && (r == ' ' || r == '\t' || r == '\n'):
			if open {
				out = append(out, w)
			}
			w, open = word{}, false
		default:
			w.text, open = w.text+string(r), true
		}
	}
	if open {
		out = append(out, w)
	}
	if inside {
		return nil, refusedQuote
	}
	return out, ""
}

// readTerms reads a search at a time. Where it has no terms, t is nil and plain is what is searched for. refused
// says why it cannot be read.
func readTerms(q string, now time.Time) (t *terms, plain, refused string) {
	words, refused := wordsOf(q)
	if refused != "" {
		return nil, "", refused
	}
	found := &terms{}
	var others []string
	for _, w := range words {
		is := false
		if !w.quoted {
			if is, refused = found.read(w.text, now); refused != "" {
				return nil, "", refused
			}
		}
		if is {
			t = found
		} else {
			others = append(others, w.text)
		}
	}
	switch {
	case t == nil:
		return nil, strings.Join(others, " "), ""
	case len(others) > 0:
		return nil, "", fmt.Sprintf("%q is no term. An ID or a name is searched for alone.", cut(others[0], 40))
	case t.fault != "" && t.state == "delivered":
		return nil, "", refusedOver
	}
	return t, "", ""
}

// read reads a word, and reports whether it is a term.
func (t *terms) read(text string, now time.Time) (is bool, refused string) {
	if rest, ok := strings.CutPrefix(strings.Replace(text, "age:", "age", 1), "age"); ok && rest != "" &&
		(rest[0] == '>' || rest[0] == '<') {
		return true, t.readAge(rest, now)
	}
	name, value, ok := strings.Cut(text, ":")
	if !ok {
		return false, ""
	}
	var into *string
	switch name {
	case "channel":
		into = &t.channel
	case "consumer":
		into = &t.consumer
	case "producer":
		into = &t.producer
	case "state":
		into, value = &t.state, strings.ToLower(value)
	case "payload":
		into = &t.payload
	case "error":
		into = &t.fault
	default:
		return false, "" // an ID may have a colon
	}
	switch {
	case value == "":
		return true, fmt.Sprintf("%s: needs a value.", name)
	case *into != "" && *into != value:
		return true, fmt.Sprintf("%s: occurs twice.", name)
	case name == "state" && !slices.Contains(states, value):
		return true, refusedState
	case name == "consumer":
		if ch, k, ok := strings.Cut(value, "/"); ok {
			if t.channel != "" && t.channel != ch {
				return true, refusedTwo
			}
			t.channel, value = ch, k
		}
	}
	*into = value
	return true, ""
}

// readAge reads what follows age.
func (t *terms) readAge(text string, now time.Time) (refused string) {
	d, err := quantity.Duration(strings.TrimPrefix(text[1:], "="))
	if err != nil || d < 0 {
		return fmt.Sprintf("age%c is followed by a duration like 90s, 1h or 2d, not %q.", text[0], cut(text[1:], 40))
	}
	into := &t.from
	if text[0] == '>' {
		into = &t.to
	}
	if !into.IsZero() {
		return fmt.Sprintf("age%c occurs twice.", text[0])
	}
	*into = now.Add(-d)
	return ""
}

// has reports whether a message of a time is of the ages that the search names.
func (t *terms) has(at time.Time) bool {
	return (t.from.IsZero() || !at.Before(t.from)) && (t.to.IsZero() || at.Before(t.to))
}

// suggestions completes a search with the terms that it does not have, from what exists.
func suggestions(q string, t *terms, consumers []MessageJob) (out []string) {
	if t == nil {
		if t = (&terms{}); q != "" {
			return nil
		}
	}
	base := q
	if base != "" {
		base += " "
	}
	if t.consumer == "" {
		for _, k := range consumers {
			if t.channel == "" || t.channel == k.Consumer {
				out = append(out, base+"consumer:"+k.Consumer+"/"+k.ID)
			}
		}
	}
	if t.state == "" {
		for _, s := range states {
			out = append(out, base+"state:"+s)
		}
	}
	for _, next := range []struct {
		has  bool
		text string
	}{{t.fault != "", "error:"}, {t.payload != "", "payload:"}, {!t.to.IsZero(), "age>1h"}, {!t.from.IsZero(), "age<1h"}} {
		if !next.has {
			out = append(out, base+next.text)
		}
	}
	return out
}

// looked says how far a search looked.
func looked(n int, things, of string, more bool) string {
	text := "Looked at " + number(n) + " " + things + " of " + of + ", the newest first."
	if n == 1 {
		text = "Looked at 1 " + strings.TrimSuffix(things, "s") + " of " + of + "."
	}
	if more {
		text += " There are older ones."
	}
	return text
}
