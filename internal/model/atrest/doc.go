// Package atrest encrypts what the store keeps of tokens, secrets and credentials.
//
// A sealed text is \x01v1:, 8 letters that name its key, a colon, a nonce of 12 bytes, and the text encrypted with
// AES-256-GCM, with a tag of 16 bytes: Overhead bytes more than the text. It says in its associated data whose field
// it is, so a sealed text that is copied to another row or field is refused. The key of AES is derived from
// BROKER_TOKEN_KEY, which is outside of the store. The empty text stays as it is.
//
// A text that does not begin like a sealed one is plain: it was stored without a key. The tokens and secrets that the
// API takes have no control characters, so none of them looks sealed.
//
// Of the tokens of producers and channels, which are only compared, a digest may stand for the token (Digest). It is
// sealed as well, so the key can be changed without the tokens, and without the key nobody can try what one may be.
//
// Files: digest.go, keys.go.
package atrest
