// Package apitoken has the form of API tokens, and what the store keeps of one.
//
// A token is pst_ID_SECRETCHECK: 10 letters of an ID that is no secret, 52 letters of 256 random bits, and 7
// letters of a CRC-32 over what is before them. Scanners of source code find the form, and a broker refuses a
// mistyped token without a look at its tokens.
//
// The store has a digest, never the token: an HMAC-SHA-256 with a key that is not in the store
// (BROKER_TOKEN_KEY), or, without a key, a SHA-256, which is enough for a secret of 256 random bits. A digest
// says which key it was made with, so tokens of the previous key are taken while that is configured.
//
// Files: token.go (the form), keys.go (the digests).
package apitoken
