package apitoken

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"hash/crc32"
)

const (
	prefix = "pst_"

	// IDSize, in letters, and the sizes of the other parts.
	IDSize     = 10
	secretSize = 52 // 256 bits
	checkSize  = 7  // 32 bits

	// Size is that of a token.
	Size = len(prefix) + IDSize + 1 + secretSize + checkSize
)

var letters = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// New returns a token that nobody has, and its ID.
func New() (token, id string) {
	var b [7 + 32]byte
	_, _ = rand.Read(b[:]) // it ends the process rather than fail
	return spell(b)
}

// Within returns a token that nobody has, with the ID that a digest gives: of what is stored nowhere and has the
// same ID in another process.
func Within(of [sha256.Size]byte) (token, id string) {
	var b [7 + 32]byte
	_, _ = rand.Read(b[:]) // as above
	copy(b[:7], of[:])
	return spell(b)
}

// spell writes the bytes of an ID and of a secret as a token.
func spell(b [7 + 32]byte) (token, id string) {
	out := append(make([]byte, 0, Size), prefix...)
	out = append(letters.AppendEncode(out, b[:7])[:len(prefix)+IDSize], '_')
	out = letters.AppendEncode(out, b[7:])
	out = appendCheck(out, out)
	return string(out), string(out[len(prefix) : len(prefix)+IDSize])
}

// appendCheck appends the letters of the checksum of what.
func appendCheck(to, what []byte) []byte {
	var sum [4]byte
	binary.BigEndian.PutUint32(sum[:], crc32.ChecksumIEEE(what))
	return letters.AppendEncode(to, sum[:])
}

// Is reports whether a text begins as API tokens do: it was meant as one.
func Is(text []byte) bool { return len(text) >= len(prefix) && string(text[:len(prefix)]) == prefix }

// ID returns the ID in a token. ok: it has the form, and its checksum is right. The ID is part of the text.
func ID(token []byte) (id []byte, ok bool) {
	if len(token) != Size || !Is(token) || token[len(prefix)+IDSize] != '_' {
		return nil, false
	}
	var check [checkSize]byte
	body := token[:Size-checkSize]
	if string(appendCheck(check[:0], body)) != string(token[len(body):]) {
		return nil, false
	}
	return body[len(prefix) : len(prefix)+IDSize], true
}
