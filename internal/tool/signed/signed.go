// Package signed checks X-Broker-Signature: t=<Unix seconds>,v1=<hex HMAC-SHA256 of "t.body">. The form is that of
// the older implementation. Only the body and the time are signed, so a signature can be repeated within the
// tolerance.
package signed

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"strconv"
	"time"
)

// Header has the signature of a request.
const Header = "X-Broker-Signature"

// Tolerance bounds the difference of the clocks, in both directions, where nothing else is set.
const Tolerance = 300 * time.Second

var (
	// ErrMalformed means that the value is missing, or not in the form.
	ErrMalformed = errors.New("signed: the signature is missing or malformed")
	// ErrMismatch means that the signature is not that of the body, or that its time is too far away.
	ErrMismatch = errors.New("signed: the signature does not match, or its time is too far away")
)

// Check checks the value of the header of a request with that body.
func Check(header, secret, body []byte, now time.Time, tolerance time.Duration) error {
	first, second, ok := bytes.Cut(header, []byte{','})
	first, second = bytes.TrimSpace(first), bytes.TrimSpace(second)
	if bytes.HasPrefix(second, []byte("t=")) {
		first, second = second, first
	}
	at, timed := bytes.CutPrefix(first, []byte("t="))
	signature, versioned := bytes.CutPrefix(second, []byte("v1="))
	seconds, err := strconv.ParseInt(string(at), 10, 64)
	if !ok || !timed || !versioned || err != nil || len(signature) != 2*sha256.Size {
		return ErrMalformed
	}
	given := make([]byte, sha256.Size)
	if _, err := hex.Decode(given, signature); err != nil {
		return ErrMalformed
	}
	mac := hmac.New(sha256.New, secret)
	mac.Write(at)
	mac.Write([]byte{'.'})
	mac.Write(body)
	most := int64(tolerance / time.Second)
	if d := now.Unix() - seconds; !hmac.Equal(given, mac.Sum(nil)) || d < -most || d > most {
		return ErrMismatch
	}
	return nil
}
