package mail

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/penstock-broker/penstock/hotpath/push"
	"github.com/penstock-broker/penstock/internal/tool/jsonread"
)

// The bounds of what is filled in, bytes.
const (
	longestSubject = 250
	longestText    = 256 << 10
)

// between is the line between the texts of jobs that share a mail.
const between = "\n\n----\n\n"

// letter is the mail of an attempt, or of several.
func (t *target) letter(of []*entry) *Letter {
	l := t.part(of[0].a, longestText)
	if len(of) == 1 {
		return l
	}
	ids := sha256.New()
	texts := []string{l.Text}
	left := longestText - len(l.Text)
	fmt.Fprintln(ids, l.ID)
	for _, e := range of[1:] {
		next := t.part(e.a, max(left, 0))
		left -= len(next.Text) + len(between)
		texts = append(texts, next.Text)
		fmt.Fprintln(ids, next.ID)
	}
	l.ID = "jobs-" + hex.EncodeToString(ids.Sum(nil)[:12])
	l.Subject += fmt.Sprintf(" (and %d more)", len(of)-1)
	l.Text = strings.Join(texts, between)
	l.Headers = [][2]string{{"X-Broker-Jobs", strconv.Itoa(len(of))}}
	return l
}

// part is what a mail has of an attempt, with at most so many bytes of its text.
func (t *target) part(a *push.Attempt, longest int) *Letter {
	value := t.values(a)
	l := &Letter{ID: a.Job(), To: t.to, Headers: [][2]string{{"X-Broker-Message-ID", header(a.Message.PathID())}}}
	if r := a.Consumer.Replay; r != nil {
		l.ID += "." + r.ID() // a repetition that was asked for
		l.Headers = append(l.Headers, [2]string{"X-Broker-Replay", r.ID()})
	}
	if a.Test {
		l.Headers = append(l.Headers, [2]string{push.TestHeader, "true"})
	}
	subject, _ := a.Policy.Subject.Fill(longestSubject, value)
	l.Subject = header(subject)
	text, cut := a.Policy.Body.Fill(longest, value)
	if l.Text = plainText(text); cut {
		l.Text += fmt.Sprintf("\n\n[cut off: the payload has %d bytes]\n", len(a.Message.Payload))
	}
	return l
}

// values returns the values of the places of a template.
func (t *target) values(a *push.Attempt) func(place string, path []string) string {
	found := members{"": a.Message.Payload}
	return func(place string, path []string) string {
		switch place {
		case "payload":
			if path == nil {
				return payload(a)
			}
			return found.text(path)
		case "channel":
			if ch := t.o.Catalogue.ChannelByNo(a.Message.ChannelNo); ch != nil {
				return ch.ID
			}
		case "producer":
			if p := t.o.Catalogue.ProducerByNo(a.Message.ProducerNo); p != nil {
				return p.ID
			}
		case "consumer":
			return a.Consumer.ID
		case "messageID":
			return a.Message.PathID()
		case "job":
			return a.Job()
		case "attempt":
			return strconv.Itoa(a.No)
		case "contentType":
			return a.Message.ContentType
		}
		return ""
	}
}

// payload is the whole payload, if it is text.
func payload(a *push.Attempt) string {
	p := a.Message.Payload
	if !utf8.Valid(p) {
		return fmt.Sprintf("(%d bytes of %s that are no text)", len(p), a.Message.ContentType)
	}
	return string(p[:min(len(p), longestText+1)])
}

var errFound = errors.New("the member is found")

// members are the JSON of the members of a payload that were looked for, by their paths; nil: there is none. A
// payload is read once for each member of its objects that a template names, however deep these are.
type members map[string][]byte

// text returns a member: the text of a string, and the JSON of another value. It is empty where there is none.
func (m members) text(path []string) string {
	value, at := m[""], ""
	for _, name := range path {
		at += "." + name
		inner, known := m[at]
		if !known {
			inner = within(value, name)
			m[at] = inner
		}
		if value = inner; value == nil {
			return ""
		}
	}
	r := jsonread.OpenCarried(value)
	defer r.Close()
	switch r.Kind() {
	case '"':
		text, _ := r.Text()
		return string(text)
	case 'n':
		return ""
	}
	return string(value)
}

// within returns the JSON of a member of an object, or of an element of an array by its number from 0; nil:
// there is none.
func within(value []byte, name string) (found []byte) {
	if !utf8.Valid(value) {
		return nil
	}
	r := jsonread.OpenCarried(value)
	defer r.Close()
	switch r.Kind() {
	case '{':
		_ = r.Object(func(have []byte) error {
			v, err := r.Value()
			if err == nil && string(have) == name {
				found, err = v, errFound
			}
			return err
		})
	case '[':
		at, err := strconv.Atoi(name)
		if err != nil || at < 0 {
			return nil
		}
		_ = r.Array(func() error {
			v, err := r.Value()
			if err == nil && at == 0 {
				found, err = v, errFound
			}
			at--
			return err
		})
	}
	return found
}

// header makes one line without control characters, which no header may have.
func header(text string) string {
	blank := func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }
	return strings.Join(strings.FieldsFunc(text, blank), " ")
}

// plainText leaves out control characters, which mail programs show in ways of their own.
func plainText(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' && r != '\t' {
			return -1
		}
		return r
	}, text)
}
