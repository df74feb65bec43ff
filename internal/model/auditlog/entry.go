package auditlog

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
)

// HashSize is the length of a hash, bytes.
const HashSize = sha256.Size

// A Hash is the hash of an entry and of all entries before it.
type Hash [HashSize]byte

// An Entry is one change, as the log has it.
type Entry struct {
	No       uint64 // 1 for the first one, without gaps
	AtMs     int64  // Unix ms by the clock of the store; never before that of the entry before
	Who      string // the kind of principal, and which one
	From     string // address of the client; "" for a change by the broker itself
	Action   string
	Resource string // path of the resource in the API
	Before   []byte // JSON of the resource; empty: there is none
	After    []byte
	Hash     Hash
}

// HashAfter is the hash that an entry has after one with the hash before; the first entry comes after the zero
// hash. It is the SHA-256 of the hash before, the number and the time as 8 bytes each, most significant first,
// and the six texts in the order of Entry, each after its length in bytes as 8 bytes.
func (e *Entry) HashAfter(before Hash) (h Hash) {
	sum := sha256.New()
	sum.Write(before[:])
	var eight [8]byte
	number := func(n uint64) {
		binary.BigEndian.PutUint64(eight[:], n)
		sum.Write(eight[:])
	}
	number(e.No)
	number(uint64(e.AtMs))
	for _, text := range [][]byte{[]byte(e.Who), []byte(e.From), []byte(e.Action), []byte(e.Resource), e.Before,
		e.After} {
		number(uint64(len(text)))
		sum.Write(text)
	}
	sum.Sum(h[:0])
	return h
}

// A Verifier checks that entries, in the order of their numbers, are one chain from the first entry on.
type Verifier struct {
	last   Hash
	lastNo uint64
	lastMs int64
}

// A Break is the first entry that does not fit the chain.
type Break struct {
	No  uint64
	Why string
}

// Error says which entry it is, and why it does not fit.
func (b *Break) Error() string { return fmt.Sprintf("entry %d %s", b.No, b.Why) }

// Next checks the next entry. Its error is a *Break.
func (v *Verifier) Next(e *Entry) error {
	want := v.lastNo + 1
	switch {
	case e.No != want:
		return &Break{want, fmt.Sprintf("is missing: the next entry is %d", e.No)}
	case e.AtMs < v.lastMs:
		return &Break{e.No, "is older than the entry before it"}
	case e.Hash != e.HashAfter(v.last):
		return &Break{e.No, "does not have the hash of what it says and of the entry before it"}
	}
	v.last, v.lastNo, v.lastMs = e.Hash, e.No, e.AtMs
	return nil
}

// Head is the number and the hash of the last entry that was checked; 0 and the zero hash before the first.
func (v *Verifier) Head() (no uint64, h Hash) { return v.lastNo, v.last }
