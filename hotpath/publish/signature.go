package publish

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"time"

	"github.com/penstock-broker/penstock/internal/model/problem"
)

// A producer with a secret signs its publishes: "X-Broker-Signature: t=<Unix seconds>,v1=<hex>",
// where v1 is the HMAC-SHA256 of "t.body". The form is that of the older implementation. Only the
// body and the time are signed, so a signature can be repeated within the tolerance.

// signatureTolerance bounds the difference of the clocks, in both directions.
const signatureTolerance = 300 * time.Second

var (
	errUnsigned = problem.New(401, "signature_required", "The producer has a publish secret: X-Broker-Signature: "+
		"t=<Unix seconds>,v1=<hex HMAC-SHA256 of t.body> is missing or malformed. Nothing was stored.")
	errSignature = problem.New(403, "signature_mismatch", "X-Broker-Signature does not match the body and the "+
		"publish secret of the producer, or its time is more than 300 seconds from that of the broker. Nothing was stored.")
	errUnsignedByLine = problem.New(403, "signature_unsupported", "The producer has a publish secret, and a batch "+
		"cannot be signed. Use broadcast. Nothing was stored.")
	errSecretSince = problem.New(403, "signature_unsupported", "The producer has a publish secret, and a batch cannot "+
		"be signed.")
)

// checkSignature checks the value of X-Broker-Signature.
func checkSignature(header []byte, secret string, body []byte, now time.Time) error {
	at, signature, ok := bytes.Cut(header, []byte(",v1="))
	at, timed := bytes.CutPrefix(at, []byte("t="))
	seconds, err := strconv.ParseInt(string(at), 10, 64)
	if !ok || !timed || err != nil || len(signature) != 2*sha256.Size {
		return errUnsigned
	}
	given := make([]byte, sha256.Size)
	if _, err := hex.Decode(given, signature); err != nil {
		return errUnsigned
	}
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write(at)
	mac.Write([]byte{'.'})
	mac.Write(body)
	most := int64(signatureTolerance / time.Second)
	if d := now.Unix() - seconds; !hmac.Equal(given, mac.Sum(nil)) || d < -most || d > most {
		return errSignature
	}
	return nil
}
