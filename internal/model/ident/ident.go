// Package ident holds the identifiers of messages and jobs: 12 bytes that
// ascend with time, shown as 20 characters of lower-case base32hex.
//
// The bytes are, big-endian, 48 bits of Unix milliseconds, 16 bits of node
// number, 16 bits of sequence inside the millisecond, which are random, and 16
// bits of index. A message has index 0; the job of the consumer at position i
// of its channel has index 1+i. So a message owns a block of 65 536 consecutive
// identifiers and the ID of a job never has to be stored to be known.
//
// The text of an ID, and what the broker makes from one (ForwardID), is a
// namespace of the broker: no client may give a message such a name, see Made.
package ident

import (
	"encoding/base32"
	"encoding/binary"
	"errors"
	"time"
)

// Size is the length of an ID in bytes.
const Size = 12

// TextSize is the length of an ID as text.
const TextSize = 20

// MaxPositions is how many jobs, and so how many consumers of one channel, a
// message's block of identifiers has room for.
const MaxPositions = 1<<16 - 1

// ErrInvalid says that a text is not an ID.
var ErrInvalid = errors.New("ident: not an ID of 20 base32hex characters")

// ID identifies a message or one of its jobs. Its bytes sort as its time does.
type ID [Size]byte

var encoding = base32.NewEncoding("0123456789abcdefghijklmnopqrstuv").WithPadding(base32.NoPadding)

// String returns the 20 characters that stand for id outside the broker.
func (id ID) String() string {
	var b [TextSize]byte
	encoding.Encode(b[:], id[:])
	return string(b[:])
}

// AppendText appends the 20 characters of id to b.
func (id ID) AppendText(b []byte) []byte { return encoding.AppendEncode(b, id[:]) }

// MarshalText makes JSON and logs show id as String does.
func (id ID) MarshalText() ([]byte, error) { return id.AppendText(nil), nil }

// UnmarshalText is the inverse of MarshalText.
func (id *ID) UnmarshalText(b []byte) (err error) {
	*id, err = Parse(string(b))
	return err
}

// Parse is the inverse of String. It accepts exactly what String produces:
// upper case, other lengths and stray low bits are ErrInvalid, so one ID has
// one spelling.
func Parse(s string) (ID, error) {
	var id ID
	if len(s) != TextSize {
		return id, ErrInvalid
	}
	var b [15]byte // DecodedLen rounds up
	n, err := encoding.Decode(b[:], []byte(s))
	if err != nil || n != Size {
		return id, ErrInvalid
	}
	copy(id[:], b[:Size])
	if id.String() != s {
		return ID{}, ErrInvalid
	}
	return id, nil
}

// IsZero reports whether id is the zero ID, which no message has.
func (id ID) IsZero() bool { return id == ID{} }

// Compare orders IDs by time, then node, then sequence, then index.
func (id ID) Compare(other ID) int {
	for i := range id {
		if id[i] != other[i] {
			if id[i] < other[i] {
				return -1
			}
			return 1
		}
	}
	return 0
}

// Millis returns the Unix milliseconds in id.
func (id ID) Millis() int64 {
	return int64(binary.BigEndian.Uint64(id[:8]) >> 16)
}

// Time returns the moment in id, in UTC.
func (id ID) Time() time.Time { return time.UnixMilli(id.Millis()).UTC() }

// Node returns the node number in id: of the broker that made the message.
func (id ID) Node() int { return int(binary.BigEndian.Uint16(id[6:])) }

// Job returns the ID of the job for the consumer at position pos (0-based,
// below MaxPositions) of the message id.
func (id ID) Job(pos int) ID {
	binary.BigEndian.PutUint16(id[10:], uint16(pos+1))
	return id
}

// Split returns the message that a job ID belongs to and the position of the
// consumer. ok is false for the ID of a message.
func (id ID) Split() (message ID, pos int, ok bool) {
	index := binary.BigEndian.Uint16(id[10:])
	if index == 0 {
		return id, 0, false
	}
	binary.BigEndian.PutUint16(id[10:], 0)
	return id, int(index) - 1, true
}

// Next returns the smallest ID above id: where a page that ended with id goes on.
func (id ID) Next() ID {
	for i := len(id) - 1; i >= 0; i-- {
		id[i]++
		if id[i] != 0 {
			break
		}
	}
	return id
}

// Previous returns the ID before this one.
func (id ID) Previous() ID {
	for i := len(id) - 1; i >= 0; i-- {
		id[i]--
		if id[i] != 255 {
			break
		}
	}
	return id
}

// AtMillis returns the smallest ID of that Unix millisecond: a bound for ranges.
func AtMillis(ms int64) ID {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], uint64(max(ms, 0)))
	var id ID
	copy(id[:6], b[2:])
	return id
}

// Before returns the largest ID that is older than a Unix millisecond: ranges exclude their start.
func Before(ms int64) ID {
	if ms <= 0 {
		return ID{}
	}
	id := AtMillis(ms - 1)
	for i := 6; i < len(id); i++ {
		id[i] = 0xff
	}
	return id
}

// Max is above every ID.
func Max() ID {
	var id ID
	for i := range id {
		id[i] = 0xff
	}
	return id
}
