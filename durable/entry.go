package durable

import (
	"bytes"
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/penstock-broker/penstock/internal/model/ident"
)

// An entry is a message of a batch and its place in the caller's slice.
type entry struct {
	*Message
	i int
}

// storable rejects values that the columns cannot hold. MySQL and SQLite therefore reject
// the same messages, and a bad row rarely costs its batch a second statement.
func storable(m *Message) error {
	switch {
	case m.Priority < 0 || m.Priority > maxPriority:
		return fmt.Errorf("%w: priority %d", ErrRejected, m.Priority)
	case m.Audience < 0 || m.Audience > math.MaxUint16:
		return fmt.Errorf("%w: audience %d", ErrRejected, m.Audience)
	case len(m.Key) > 255:
		return fmt.Errorf("%w: message ID of %d bytes", ErrRejected, len(m.Key))
	case len(m.ContentType) > 255:
		return fmt.Errorf("%w: content type of %d bytes", ErrRejected, len(m.ContentType))
	case m.TTLMs < 0 || m.TTLMs > maxTTL.Milliseconds():
		return fmt.Errorf("%w: time to live of %d ms", ErrRejected, m.TTLMs)
	case len(m.Addressed) > maxPositionBytes || len(m.LeftOut) > maxPositionBytes:
		return fmt.Errorf("%w: %d bytes of positions", ErrRejected, max(len(m.Addressed), len(m.LeftOut)))
	case len(m.Headers) > math.MaxUint16:
		return fmt.Errorf("%w: headers of %d bytes", ErrRejected, len(m.Headers))
	}
	return nil
}

// maxPriority is the highest priority of a message.
const maxPriority = 1023

// maxTTL is the longest time to live of a message.
const maxTTL = 10 * 365 * 24 * time.Hour

// takenBy returns the result of a message whose key belongs to the stored message original.
// repeats reports whether the message is a repeat of that one.
func takenBy(original ident.ID, e entry, repeats bool) error {
	switch {
	case repeats && original == e.ID:
		return nil // an earlier commit of this message
	case repeats:
		return &DuplicateError{ID: original}
	case original == e.ID:
		return ErrStale // another message has the ID; the caller takes a new one
	case e.Idempotent():
		return ErrReused
	}
	return ErrConflict
}

// byKey orders rows as the primary key of messages does.
func byKey(a, b entry) int {
	return cmp.Or(cmp.Compare(a.ChannelNo, b.ChannelNo), a.ID.Compare(b.ID))
}

// spread sets the same result for every entry of a part.
func spread(part []entry, errs []error, err error) {
	for _, e := range part {
		errs[e.i] = err
	}
}

// same reports whether a stored message has the content of m. One with the ID of m is m then, stored
// by an earlier commit; one with the key of m is what m repeats if the terms are the same, too.
func same(stored, m *Message) bool {
	if m.Event() {
		return sameEvent(stored, m)
	}
	return (sameHead(stored, m) || m.Idempotent() && stored.Key == m.Key) && string(stored.Payload) == string(m.Payload)
}

// sameHead is same without the payload.
func sameHead(stored, m *Message) bool {
	return stored.ProducerNo == m.ProducerNo &&
		stored.Priority == m.Priority &&
		stored.Key == m.Key &&
		stored.ContentType == m.ContentType &&
		sameHeaders(stored.Headers, m.Headers)
}

// sameHeaders compares headers without regard to their order, and without those that say in which trace
// they were sent. A producer that repeats a message may send them in another order, such as that of a
// hash table, and each of its tries may be a span of its own.
func sameHeaders(a, b []byte) bool {
	return bytes.Equal(a, b) || slices.Equal(sortedHeaders(a), sortedHeaders(b))
}

func sortedHeaders(headers []byte) []string {
	var lines []string
	for line := range strings.SplitSeq(string(headers), "\n") {
		name, value, _ := strings.Cut(line, ":")
		switch name = strings.ToLower(name); name {
		case "", "traceparent", "tracestate":
		default:
			lines = append(lines, name+":"+value)
		}
	}
	slices.Sort(lines)
	return lines
}

// A sqliteBatch is the insert of one part.
type sqliteBatch struct {
	store *Store
	ctx   context.Context // of this one transaction
	tx    *sql.Tx
	node  NodeLease
}

// errFound is the result of a message that demands a second server and is found stored. proveFound
// replaces it.
var errFound = errors.New("durable: found stored, not proved")

// markFound sets that result for the entries of a part that a look has found. rest are those that it
// has not found.
func markFound(part, rest []entry, errs []error) {
	for _, e := range part {
		if e.Replicated && errs[e.i] == nil && !slices.ContainsFunc(rest, func(r entry) bool { return r.i == e.i }) {
			errs[e.i] = errFound
		}
	}
}

// saysStored reports whether a result says that a message is stored.
func saysStored(err error) bool {
	return err == nil || errors.Is(err, errFound) || errors.Is(err, ErrDuplicate)
}
