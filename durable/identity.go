package durable

import (
	"bytes"
	"context"
	"crypto/sha256"
	"database/sql"
	"strconv"
	"strings"

	"github.com/penstock-broker/penstock/internal/model/ident"
)

// The Key of a message is its identity: a second message with the Key of a stored one is not
// stored. A Key has one of five forms, which never equal each other, since an ID has no slash,
// question mark, exclamation mark or equals sign:
//
//	ID              the producer's message ID, unique in the channel
//	NO/ID           the same, unique among the messages of the producer with that number
//	?DIGEST         an Idempotency-Key; the message has no ID of its producer
//	!DIGEST         source and id of a CloudEvent; the message has no ID of its producer
//	=RECEIPT        a message without identity that was in a journal; see ReceiptKey
//
// An Idempotency-Key ends by its age, not with its message. It compares the payload and the terms.

// MaxProducerID is the longest ID that ProducerKey takes, in bytes.
const MaxProducerID = 255 - 8

// ProducerKey returns the Key of an ID that is unique among the messages of a producer.
func ProducerKey(producerNo uint32, id string) string {
	return strconv.FormatUint(uint64(producerNo), 36) + "/" + id
}

// IdempotencyKey returns the Key for the Idempotency-Key of a producer.
func IdempotencyKey(producerNo uint32, key string) string {
	sum := sha256.Sum256([]byte(strconv.FormatUint(uint64(producerNo), 10) + " " + key))
	return idempotent + string(sum[:16])
}

// EventKey returns the Key for source and id of a CloudEvent. producerNo is 0 where they are unique
// in the channel, otherwise the number of the producer among whose messages they are.
func EventKey(producerNo uint32, source, id string) string {
	text := strconv.FormatUint(uint64(producerNo), 10) + " " + strconv.Itoa(len(source)) + " " + source + id
	sum := sha256.Sum256([]byte(text))
	return event + string(sum[:16])
}

// ReceiptKey returns the Key of a message that its producer gave no identity, and that is stored from
// a journal. A journal is replayed until its broker knows that the store has the message, so the
// receipt is what makes a second store of it a repeat.
func ReceiptKey(receipt ReceiptID) string { return received + string(receipt[:]) }

const idempotent, event, received = "?", "!", "="

// Idempotent reports whether the Key of the message is an Idempotency-Key.
func (m *Message) Idempotent() bool { return strings.HasPrefix(m.Key, idempotent) }

// Event reports whether the Key of the message is that of a CloudEvent.
func (m *Message) Event() bool { return strings.HasPrefix(m.Key, event) }

// Digested reports whether the Key of the message is bytes, which nobody sees.
func (m *Message) Digested() bool {
	return m.Idempotent() || m.Event() || strings.HasPrefix(m.Key, received)
}

// PublicID is the ID of the message towards its producer: the producer's own, or ID if the producer
// gave none.
func (m *Message) PublicID() string {
	if m.Scoped() {
		_, id, _ := strings.Cut(m.Key, "/")
		return id
	}
	return m.PathID()
}

// PathID is the ID of the message in its path and towards consumers, unique in the channel and the
// same for ever: the public ID where that is unique in the channel and cannot be taken for an internal
// one, else ID. Consumers know repeats by it, so no two messages of a channel may share it.
func (m *Message) PathID() string {
	if m.pathHasKey() {
		return m.Key
	}
	return m.ID.String()
}

// AppendPathID appends PathID.
func (m *Message) AppendPathID(b []byte) []byte {
	if m.pathHasKey() {
		return append(b, m.Key...)
	}
	return m.ID.AppendText(b)
}

func (m *Message) pathHasKey() bool {
	if m.Key == "" || m.Digested() || m.Scoped() {
		return false
	}
	return !ident.Own(m.Key) // producers could give such IDs once
}

// Scoped reports whether the Key is the ID of a producer that is unique among its messages only.
func (m *Message) Scoped() bool { return strings.IndexByte(m.Key, '/') >= 0 && !m.Digested() }

// fingerprint is the part of a digest of the payload that is stored with an Idempotency-Key.
func (m *Message) fingerprint() []byte {
	sum := sha256.Sum256(m.Payload)
	return sum[:16]
}

// A use is the message that has an Idempotency-Key, with the fingerprint of its payload and the digest
// of its terms, nil where the broker that stored it did not know them.
type use struct {
	id          ident.ID
	fingerprint string
	terms       []byte
}

// usedBy returns the result of a message whose key another message has.
func (s *Store) usedBy(ctx context.Context, q querier, u use, e entry) (answer, err error) {
	if u.fingerprint != string(e.fingerprint()) {
		return ErrReused, nil
	}
	alike, err := s.usedAlike(ctx, q, u, e.Message)
	if err != nil || !alike {
		return ErrReused, err
	}
	return &DuplicateError{ID: u.id}, nil
}

const (
	selectUses = `
SELECT
    msg_key,
    id,
    fingerprint,
    terms
FROM idempotency_keys
WHERE channel_no = ?
  AND msg_key IN (?...)`

	deleteUse = `
DELETE FROM idempotency_keys
WHERE channel_no = ?
  AND msg_key = ?
  AND id = ?`

	sqliteInsertUse = `
INSERT INTO idempotency_keys (
    channel_no,
    msg_key,
    id,
    fingerprint,
    terms
)
VALUES (?, ?, ?, ?, ?)`

	selectOldUses = `
SELECT id
FROM idempotency_keys
WHERE id < ?
ORDER BY id
LIMIT ?`

	deleteOldUses = `
DELETE FROM idempotency_keys
WHERE id <= ?`
)

// uses builds the insert of Idempotency-Keys. The entries are sorted by channel and key.
func (w *builder) uses(part []entry) string {
	b := w.begin(`INSERT INTO idempotency_keys (channel_no, msg_key, id, fingerprint, terms) VALUES `)
	for i, e := range part {
		if i > 0 {
			b = append(b, ",\n"...)
		}
		b = append(b, '(')
		b = appendUint(b, uint64(e.ChannelNo))
		b = append(b, ',')
		b = appendHex(b, []byte(e.Key))
		b = append(b, ',')
		b = appendID(b, e.ID)
		b = append(b, ',')
		b = appendHex(b, e.fingerprint())
		b = append(b, ',')
		b = appendHex(b, e.terms())
		b = append(b, ')')
	}
	w.b = b
	return w.text()
}

// resolveUses sets the results of the entries of one channel whose Idempotency-Key another message
// has. It removes keys that are too old, and returns the other entries.
func (s *Store) resolveUses(ctx context.Context, q querier, part []entry, errs []error) (rest []entry, err error) {
	args := []any{part[0].ChannelNo}
	for _, e := range part {
		if e.Idempotent() {
			args = append(args, []byte(e.Key))
		}
	}
	if len(args) == 1 {
		return part, nil
	}
	found := map[string]use{}
	query := list(selectUses, len(args)-1)
	if s.dialect != sqliteDialect {
		query += "\nLOCK IN SHARE MODE" // wait for a transaction that is about to commit such a row
	}
	err = each(ctx, q, query, args, func(r *sql.Rows) error {
		var key, fingerprint []byte
		var u use
		err := r.Scan(&key, asID{&u.id}, &fingerprint, &u.terms)
		u.fingerprint = string(fingerprint)
		found[string(key)] = u
		return err
	})
	if err != nil {
		return nil, err
	}
	for _, e := range part {
		u, taken := found[e.Key]
		if !e.Idempotent() || !taken || u.id == e.ID {
			rest = append(rest, e)
			continue
		}
		if u.id.Millis()+s.keysKept.Milliseconds() >= e.ID.Millis() {
			if errs[e.i], err = s.usedBy(ctx, q, u, e); err != nil {
				return nil, err
			}
			continue
		}
		if err := exec(ctx, q, deleteUse, e.ChannelNo, []byte(e.Key), u.id[:]); err != nil {
			return nil, err
		}
		rest = append(rest, e)
	}
	return rest, nil
}

// ForgetKeys removes up to limit Idempotency-Keys that are older than the store keeps them, and
// returns their number. nowMs is the store's clock.
func (s *Store) ForgetKeys(ctx context.Context, nowMs int64, limit int) (removed int, err error) {
	before := ident.AtMillis(nowMs - s.keysKept.Milliseconds())
	err = s.run(ctx, transaction{name: "forget idempotency keys", harmless: true}, func(ctx context.Context,
		tx *sql.Tx) error {
		old, err := selectIDs(ctx, tx, selectOldUses, []any{before[:], limit})
		if removed = len(old); err != nil || removed == 0 {
			return err
		}
		return exec(ctx, tx, deleteOldUses, old[removed-1][:])
	})
	return removed, err
}

const selectTerms = `
SELECT
    ttl_ms,
    addressed,
    headers
FROM messages
WHERE channel_no = ?
  AND id = ?`

// usedAlike reports whether a message has the terms of the use of its Idempotency-Key. A use of a
// broker that did not know terms has none, and matches as it did then.
func (s *Store) usedAlike(ctx context.Context, q querier, u use, m *Message) (bool, error) {
	if u.terms == nil || bytes.Equal(u.terms, m.terms()) {
		return true, nil
	}
	var stored []*Message // none once retention has removed it, or where the use is that of a schedule
	err := each(ctx, q, selectTerms, []any{m.ChannelNo, u.id[:]}, func(r *sql.Rows) error {
		var h Message
		err := r.Scan(&h.TTLMs, asPositions{&h.Addressed}, &h.Headers)
		stored = append(stored, &h)
		return err
	})
	if err != nil || len(stored) == 0 {
		return false, err
	}
	return s.agree(ctx, q, stored[0], m)
}
