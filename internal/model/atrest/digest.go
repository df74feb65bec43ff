package atrest

import (
	"crypto/sha256"
	"crypto/subtle"
	"strings"
)

const digestMark = "\x01d1:"

// Digest returns what stands for a token of which only a digest is kept, \x01d1: and the 32 bytes of SHA-256 of the
// token. A digest, and the empty token, stay as they are. The token itself is not known from then on.
func Digest(token string) string {
	if token == "" || Digested(token) {
		return token
	}
	sum := sha256.Sum256([]byte(token))
	return digestMark + string(sum[:])
}

// Digested reports whether a text is the digest of a token.
func Digested(text string) bool {
	return len(text) == len(digestMark)+sha256.Size && strings.HasPrefix(text, digestMark)
}

// Matches compares a token that was sent with one that is kept, or with its digest, in a time that depends on
// neither. An empty one that is kept matches no token.
func Matches(sent []byte, kept string) bool {
	if kept == "" {
		return false
	}
	a := sha256.Sum256(sent)
	if Digested(kept) {
		return subtle.ConstantTimeCompare(a[:], []byte(kept[len(digestMark):])) == 1
	}
	b := sha256.Sum256([]byte(kept))
	return subtle.ConstantTimeCompare(a[:], b[:]) == 1
}

// Same reports whether two kept tokens, each of which may be a digest, are of one token.
func Same(a, b string) bool { return a == b || Digest(a) == Digest(b) }

// Shown returns a kept token as people may see it: "" of a digest, which is of no use to them.
func Shown(kept string) string {
	if Digested(kept) {
		return ""
	}
	return kept
}
