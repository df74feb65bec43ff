package principal

import (
	"crypto/sha256"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/internal/model/apitoken"
	"github.com/penstock-broker/penstock/internal/model/scope"
)

// Most is the largest number of entries.
const Most = 1000

// An Entry is one of the setting.
type Entry struct {
	Subject string // as the setting has it
	Scopes  scope.Set
	ID      string // the same at each start and each broker with that entry
	Token   string // of this process alone

	attributes []attribute
	bearer     string
}

// A Map has the entries in their order. nil has none.
type Map struct{ entries []Entry }

// Parse reads the setting. Its error says which entry is wrong, and what of it.
func Parse(text string) (*Map, error) {
	m := &Map{}
	for _, part := range split(text, ';', '\n') {
		part = strings.TrimSpace(part)
		if part == "" {
			continue
		}
		if len(m.entries) == Most {
			return nil, fmt.Errorf("has more than %d entries", Most)
		}
		e, err := parseEntry(part)
		if err != nil {
			return nil, fmt.Errorf("is wrong at entry %d (%s): %w", len(m.entries)+1, cut(part), err)
		}
		for i := range m.entries {
			if covers(e.attributes, m.entries[i].attributes) {
				return nil, fmt.Errorf("is wrong at entry %d (%s): no certificate reaches it, because entry %d before it "+
					"has a part of its subject, and the first one counts", len(m.entries)+1, cut(part), i+1)
			}
		}
		m.entries = append(m.entries, e)
	}
	if len(m.entries) == 0 {
		return nil, nil
	}
	return m, nil
}

// parseEntry reads SUBJECT=SCOPES. No scope has an equals sign, so the last one is between the two.
func parseEntry(text string) (e Entry, err error) {
	at := strings.LastIndexByte(text, '=')
	if at < 0 || !strings.Contains(text[:at], "=") {
		return e, errors.New("it must be SUBJECT=SCOPES, like CN=orders-service=channel:orders,management:read")
	}
	words := strings.Split(text[at+1:], ",")
	for i := range words {
		words[i] = strings.TrimSpace(words[i])
	}
	if e.Scopes, err = scope.ParseSet(words); err != nil {
		return e, err
	}
	e.Subject = strings.TrimSpace(text[:at])
	if e.attributes, err = parseSubject(e.Subject); err != nil {
		return e, err
	}
	sum := sha256.Sum256([]byte(e.Subject + "\n" + e.Scopes.String()))
	e.Token, e.ID = apitoken.Within(sum)
	e.bearer = "Bearer " + e.Token
	return e, nil
}

// covers reports whether a subject has all attributes.
func covers(subject, attributes []attribute) bool {
	for _, a := range attributes {
		if !slices.Contains(subject, a) {
			return false
		}
	}
	return true
}

// Entries returns them.
func (m *Map) Entries() []Entry {
	if m == nil {
		return nil
	}
	return m.entries
}

// of returns the entry of a certificate at a time; nil: it has none.
func (m *Map) of(cert *x509.Certificate, now time.Time) *Entry {
	if now.After(cert.NotAfter) { // the handshake may be long ago
		return nil
	}
	subject, ok := subjectOf(cert)
	if !ok {
		return nil
	}
	for i := range m.entries {
		if covers(subject, m.entries[i].attributes) {
			return &m.entries[i]
		}
	}
	return nil
}

// Certify gives a request without Authorization the token of the certificate of its connection.
func (m *Map) Certify(rc *fasthttp.RequestCtx) {
	if m == nil || len(rc.Request.Header.Peek(fasthttp.HeaderAuthorization)) > 0 {
		return
	}
	state := rc.TLSConnectionState()
	if state == nil || len(state.VerifiedChains) == 0 || len(state.PeerCertificates) == 0 {
		return
	}
	if e := m.of(state.PeerCertificates[0], time.Now()); e != nil {
		rc.Request.Header.Set(fasthttp.HeaderAuthorization, e.bearer)
	}
}
