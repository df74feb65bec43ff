package atrest

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"

	"github.com/penstock-broker/penstock/internal/model/apitoken"
)

const (
	mark      = "\x01v1:"
	nameSize  = 8 // of apitoken.KeyID
	nonceSize = 12
	headSize  = len(mark) + nameSize + 1 + nonceSize

	// Overhead is how many bytes a sealed text has more than the text.
	Overhead = headSize + 16
)

// ErrKey means that a text was sealed with a key that is not known here.
var ErrKey = errors.New("it is encrypted with another BROKER_TOKEN_KEY")

// ErrDamaged means that a sealed text is not what was sealed for this field.
var ErrDamaged = errors.New("its encrypted text was changed, or is of another field")

type key struct {
	name string
	aead cipher.AEAD
}

// newKey returns the key derived from one of 32 bytes; nil: there is none.
func newKey(of []byte) *key {
	if len(of) == 0 {
		return nil
	}
	mac := hmac.New(sha256.New, of)
	mac.Write([]byte("encryption at rest"))
	block, err := aes.NewCipher(mac.Sum(nil))
	if err != nil {
		panic(err) // a key of 32 bytes is right
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		panic(err) // as above: the block is that of AES
	}
	return &key{apitoken.KeyID(of), aead}
}

// A Keys seals with the present key, and opens with it and the previous one. nil has no keys: it leaves texts plain.
type Keys struct {
	present, previous, before *key
	digests                   bool
}

// NewKeys returns the keys derived from two of 32 bytes each, either of which may be nil.
func NewKeys(present, previous []byte) *Keys {
	if len(present)+len(previous) == 0 {
		return nil
	}
	return &Keys{present: newKey(present), previous: newKey(previous)}
}

// Seal returns a text as it is stored in a field.
func (k *Keys) Seal(text, field string) string {
	if k == nil || k.present == nil || text == "" {
		return text
	}
	out := make([]byte, headSize, len(text)+Overhead)
	n := copy(out, mark+k.present.name+":")
	_, _ = rand.Read(out[n:headSize]) // it ends the process rather than fail
	return string(k.present.aead.Seal(out, out[n:headSize], []byte(text), associated(string(out[:n]), field)))
}

// Open returns a text of Seal, or a plain one. The error is ErrKey or ErrDamaged.
func (k *Keys) Open(text, field string) (string, error) {
	if !Sealed(text) {
		return text, nil
	}
	with := k.of(NameOf(text))
	if with == nil {
		return "", fmt.Errorf("%w (%s)", ErrKey, NameOf(text))
	}
	plain, err := with.aead.Open(nil, []byte(text[headSize-nonceSize:headSize]), []byte(text[headSize:]),
		associated(text[:headSize-nonceSize], field))
	if err != nil {
		return "", ErrDamaged
	}
	return string(plain), nil
}

// associated is what a sealed text is bound to: how and with which key it was sealed, and its field.
func associated(head, field string) []byte { return []byte(head + "\x00" + field) }

func (k *Keys) of(name string) *key {
	if k == nil {
		return nil
	}
	for _, one := range []*key{k.present, k.previous, k.before} {
		if one != nil && one.name == name {
			return one
		}
	}
	return nil
}

// Current reports whether a text is stored as Seal would store it now.
func (k *Keys) Current(text string) bool {
	switch {
	case text == "":
		return true
	case k == nil || k.present == nil:
		return !Sealed(text)
	}
	return Sealed(text) && NameOf(text) == k.present.name
}

// Sealed reports whether a text is sealed.
func Sealed(text string) bool { return len(text) >= Overhead && strings.HasPrefix(text, mark) }

// NameOf names the key of a sealed text.
func NameOf(text string) string { return text[len(mark) : len(mark)+nameSize] }

// Name names the present key; "": there is none.
func (k *Keys) Name() string {
	if k == nil || k.present == nil {
		return ""
	}
	return k.present.name
}

// Digesting returns keys that keep of tokens that are only compared their digests, where there is a present key.
func (k *Keys) Digesting() *Keys {
	if k == nil || k.present == nil {
		return k
	}
	out := *k
	out.digests = true
	return &out
}

// Kept returns what is kept of a token that is only compared.
func (k *Keys) Kept(token string) string {
	if k == nil || !k.digests {
		return token
	}
	return Digest(token)
}

// Leaving returns keys that open what k opens, and seal nothing.
func (k *Keys) Leaving() *Keys {
	if k == nil {
		return nil
	}
	return &Keys{previous: k.present, before: k.previous}
}
