package push

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strconv"

	"github.com/penstock-broker/penstock/internal/model/policy"
	"github.com/penstock-broker/penstock/internal/tool/egress"
)

// A tokenSeal closes the tokens of one client for Redis, and names them there. Name and key are
// derived from the client, its secret and a secret of the store, so a copy of Redis tells neither the
// token nor the client, however simple the client's secret is. Another URL, ID, secret or set of
// scopes is another client; another spelling of the same URL is not.
type tokenSeal struct {
	name string
	box  cipher.AEAD
}

func newTokenSeal(store []byte, c policy.OAuth2) tokenSeal {
	scopes := slices.Clone(c.Scopes)
	slices.Sort(scopes)
	identity := ""
	for _, part := range append([]string{egress.Plain(c.TokenURL), c.ClientID, c.ClientSecret},
		slices.Compact(scopes)...) {
		identity += strconv.Itoa(len(part)) + ":" + part
	}
	derive := func(what string, n int) []byte {
		// The error is that of a length beyond 255 hashes.
		key, _ := hkdf.Key(sha256.New, append(slices.Clone(store), c.ClientSecret...), nil, "penstock token "+what+"\n"+
			identity, n)
		return key
	}
	block, err := aes.NewCipher(derive("key", 32))
	if err != nil {
		panic(err) // the length of the key is right
	}
	box, err := cipher.NewGCM(block)
	if err != nil {
		panic(err) // the block is that of AES
	}
	return tokenSeal{name: hex.EncodeToString(derive("name", 16)), box: box}
}

// close seals a token.
func (s *tokenSeal) close(text string) []byte {
	nonce := make([]byte, s.box.NonceSize())
	_, _ = rand.Read(nonce) // never fails, says its documentation
	return s.box.Seal(nonce, nonce, []byte(text), []byte(s.name))
}

// open opens a sealed token. It reports false for what this seal has not closed.
func (s *tokenSeal) open(sealed []byte) (text string, ok bool) {
	n := s.box.NonceSize()
	if len(sealed) < n {
		return "", false
	}
	b, err := s.box.Open(nil, sealed[:n], sealed[n:], []byte(s.name))
	return string(b), err == nil && printable(string(b))
}

// newVersion names a fetch.
func newVersion() string {
	var b [12]byte
	_, _ = rand.Read(b[:]) // never fails, says its documentation
	return hex.EncodeToString(b[:])
}
