package publish

import (
	"errors"
	"time"

	"github.com/penstock-broker/penstock/internal/model/problem"
	"github.com/penstock-broker/penstock/internal/tool/signed"
)

// A producer with a secret signs its publishes, see package signed.

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
	switch err := signed.Check(header, []byte(secret), body, now, signed.Tolerance); {
	case errors.Is(err, signed.ErrMalformed):
		return errUnsigned
	case err != nil:
		return errSignature
	}
	return nil
}
