package bench

import (
	"encoding/hex"
	"errors"
	"hash/crc32"
)

// An Identity travels with every message. A receiver reads from it which message it has and how
// long it took.
type Identity struct {
	Run      uint64 // number of the measurement; messages of other runs are strangers
	Seq      uint64 // 0-based
	Intended int64  // Unix ns at which the schedule wanted it sent
	Sent     int64  // Unix ns at which it was sent, for the first time
}

// IdentitySize is the length of an identity as text. The text is ASCII without quotes, so it fits
// into a header, into JSON and at the front of a payload.
const IdentitySize = len(identityMagic) + 4*17

const identityMagic = "PENBENCH2"

var errIdentity = errors.New("bench: no identity")

// Append appends the text of id to b.
func (id Identity) Append(b []byte) []byte {
	b = append(b, identityMagic...)
	for _, v := range [4]uint64{id.Run, id.Seq, uint64(id.Intended), uint64(id.Sent)} {
		b = append(b, '-')
		var raw [8]byte
		for i := range raw {
			raw[i] = byte(v >> (56 - 8*i))
		}
		b = hex.AppendEncode(b, raw[:])
	}
	return b
}

// ParseIdentity reads an identity from the front of b.
func ParseIdentity(b []byte) (Identity, error) {
	if len(b) < IdentitySize || string(b[:len(identityMagic)]) != identityMagic {
		return Identity{}, errIdentity
	}
	b = b[len(identityMagic):]
	var v [4]uint64
	for i := range v {
		if b[0] != '-' {
			return Identity{}, errIdentity
		}
		var raw [8]byte
		if _, err := hex.Decode(raw[:], b[1:17]); err != nil {
			return Identity{}, errIdentity
		}
		for _, c := range raw {
			v[i] = v[i]<<8 | uint64(c)
		}
		b = b[17:]
	}
	return Identity{Run: v[0], Seq: v[1], Intended: int64(v[2]), Sent: int64(v[3])}, nil
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// sum is the ledger's checksum of a body: CRC-32C, which the processor computes at many GB/s and
// which detects accidental changes.
func sum(body []byte) uint32 { return crc32.Checksum(body, castagnoli) }
