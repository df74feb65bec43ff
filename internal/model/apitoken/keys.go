package apitoken

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
)

// KeySize is that of a key, in bytes.
const KeySize = 32

// errKey does not repeat the text, which is a secret.
var errKey = errors.New("must be the base64 of exactly 32 bytes, as openssl rand -base64 32 prints it")

// ParseKey reads the base64 of a key. A key of one repeated byte is refused: it is nothing that was chosen at
// random.
func ParseKey(text string) ([]byte, error) {
	key, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		key, err = base64.RawStdEncoding.DecodeString(text)
	}
	if err != nil || len(key) != KeySize {
		return nil, errKey
	}
	for _, b := range key {
		if b != key[0] {
			return key, nil
		}
	}
	return nil, errors.New("is no random key: all its bytes are the same")
}

// A Keys is the keys of digests. The zero value has none.
type Keys struct {
	present, previous []byte
}

// NewKeys returns the keys of digests: new ones are made with present, and both are known. Either may be nil.
func NewKeys(present, previous []byte) Keys { return Keys{present, previous} }

// A Digest is what the store keeps of a token.
type Digest struct {
	Sum   [sha256.Size]byte
	KeyID string // of the key that made it; "": none
}

// Digest returns what is kept of a token.
func (k Keys) Digest(token []byte) Digest { return digest(k.present, token) }

func digest(key, token []byte) Digest {
	if len(key) == 0 {
		return Digest{Sum: sha256.Sum256(token)}
	}
	mac := hmac.New(sha256.New, key)
	mac.Write(token)
	d := Digest{KeyID: KeyID(key)}
	mac.Sum(d.Sum[:0])
	return d
}

// KeyID names a key without telling it: 8 letters of an HMAC with it. "": no key.
func KeyID(key []byte) string {
	if len(key) == 0 {
		return ""
	}
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte("the name of a key"))
	return letters.EncodeToString(mac.Sum(nil)[:5])
}

// Knows reports whether digests of that key can be compared.
func (k Keys) Knows(keyID string) bool { return keyID == "" || k.of(keyID) != nil }

// of returns the key of that name, nil where it is none of these.
func (k Keys) of(keyID string) []byte {
	for _, key := range [][]byte{k.present, k.previous} {
		if len(key) > 0 && KeyID(key) == keyID {
			return key
		}
	}
	return nil
}

// Matches reports whether a digest is that of a token, in a time that does not depend on how they differ.
func (k Keys) Matches(token []byte, d Digest) bool {
	var key []byte
	if d.KeyID != "" {
		if key = k.of(d.KeyID); key == nil {
			return false
		}
	}
	mine := digest(key, token)
	return subtle.ConstantTimeCompare(mine.Sum[:], d.Sum[:]) == 1
}
