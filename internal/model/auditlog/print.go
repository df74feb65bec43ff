package auditlog

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"unicode/utf8"

	"github.com/penstock-broker/penstock/internal/model/atrest"
)

// MostBytes bounds the JSON of a resource in an entry.
const MostBytes = 64 << 10

// A Printer makes fingerprints of secrets: equal ones have equal fingerprints, and nobody without the key can
// try what a secret may be.
type Printer struct{ Key []byte }

// Print returns the fingerprint of a secret, "" of an empty one.
func (p Printer) Print(secret string) string {
	if secret == "" {
		return ""
	}
	mac := hmac.New(sha256.New, p.Key)
	mac.Write([]byte("audit\x00" + secret))
	return "hmac-sha256:" + base64.RawURLEncoding.EncodeToString(mac.Sum(nil)[:15])
}

// Token returns the fingerprint of a token, the same of its digest, which is all that the store may have of it.
func (p Printer) Token(token string) string { return p.Print(atrest.Digest(token)) }

// FailSafeHeader is the header with the pass of the fail-safe of a broker.
const FailSafeHeader = "Penstock-Fail-Safe"

// Pass returns what the fail-safe of a broker shows where it calls re-trigger for a message, so that it writes no
// entry: a User-Agent and the admin token, which others have too, prove nothing. "" without a key.
func (p Printer) Pass(channel, message string) string {
	if len(p.Key) == 0 {
		return ""
	}
	mac := hmac.New(sha256.New, p.Key)
	mac.Write([]byte("fail-safe\x00" + channel + "\x00" + message))
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// A cutting is what an entry has of JSON that is longer than MostBytes.
type cutting struct {
	Cut    bool
	Bytes  int
	SHA256 string
	Begin  string // of the JSON, as text
}

// JSON returns the JSON of a value, at most MostBytes: of a longer one an object that says so, with its length,
// its digest and its begin. nil for nil.
func JSON(value any) []byte {
	if value == nil {
		return nil
	}
	text, err := json.Marshal(value)
	if err != nil { // no value of this program has one
		text, _ = json.Marshal(map[string]string{"Error": err.Error()})
	}
	if len(text) <= MostBytes {
		return text
	}
	digest := sha256.Sum256(text)
	// Each quote and backslash of the begin becomes two bytes, and other characters at most six.
	for most := MostBytes; ; most /= 2 {
		begin := text[:most]
		for len(begin) > 0 && !utf8.Valid(begin) {
			begin = begin[:len(begin)-1]
		}
		short, _ := json.Marshal(cutting{true, len(text), hex.EncodeToString(digest[:]), string(begin)})
		if len(short) <= MostBytes {
			return short
		}
	}
}
