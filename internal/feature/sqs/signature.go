package sqs

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/durable"
)

// Signatures of AWS, version 4:
// https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-create-signed-request.html

const (
	algorithm = "AWS4-HMAC-SHA256"
	service   = "sqs"
	scopeEnd  = "aws4_request"
	amzDate   = "20060102T150405Z"
	// mostAge is how old a signature may be, and how far ahead.
	mostAge = 15 * time.Minute
	// keyPrefix begins the access keys of brokers, keyBytes is their length.
	keyPrefix, keyBytes = "PSTK", 20
)

// NewKey returns a new access key, of no channel yet.
func NewKey() durable.SQSKey {
	var secret [30]byte
	_, _ = rand.Read(secret[:]) // never fails
	return durable.SQSKey{ID: keyPrefix + rand.Text()[:keyBytes-len(keyPrefix)],
		Secret: base64.RawURLEncoding.EncodeToString(secret[:])}
}

// ours reports whether an access key has the form of those that brokers make.
func ours(key string) bool { return len(key) == keyBytes && strings.HasPrefix(key, keyPrefix) }

// KeyIn returns the access key with which a request is signed; "": none that a broker made.
func KeyIn(h *fasthttp.RequestHeader) string {
	if s, err := readSignature(h); err == nil && ours(s.key) {
		return s.key
	}
	return ""
}

// A signature is what the head of a request says of its signature.
type signature struct {
	key, date, region string
	headers           []string // that are signed, in lower case, sorted
	mac               string   // hex
	date14            string   // the time of the request, as amzDate
	at                time.Time
}

// readSignature reads the signature of a request.
func readSignature(h *fasthttp.RequestHeader) (s signature, err error) {
	all := h.PeekAll(fasthttp.HeaderAuthorization)
	if len(all) != 1 || len(all[0]) == 0 {
		return s, noSignature.New("The request must contain one Authorization header, with a signature of version 4.")
	}
	rest, ok := strings.CutPrefix(string(all[0]), algorithm)
	if !ok || rest == "" || rest[0] != ' ' && rest[0] != '\t' {
		return s, badSignature.New("The Authorization header has another algorithm than %s.", algorithm)
	}
	var scope []string
	for part := range strings.SplitSeq(rest, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		switch name {
		case "Credential":
			scope = strings.Split(value, "/")
		case "SignedHeaders":
			s.headers = strings.Split(value, ";")
		case "Signature":
			s.mac = value
		}
	}
	if len(scope) != 5 || scope[0] == "" || scope[3] != service || scope[4] != scopeEnd {
		return s, badSignature.New("The Credential must be an access key, a date, a region, %s and %s, with / between them.",
			service, scopeEnd)
	}
	s.key, s.date, s.region = scope[0], scope[1], scope[2]
	return s, s.readHeaders(h)
}

// readHeaders reads the time of a request, and checks that what decides is signed.
func (s *signature) readHeaders(h *fasthttp.RequestHeader) (err error) {
	needed := []string{"host"}
	switch date := string(h.Peek("X-Amz-Date")); {
	case date != "":
		needed = append(needed, "x-amz-date")
		s.date14 = date
		s.at, err = time.Parse(amzDate, date)
	default:
		needed = append(needed, "date")
		s.at, err = http.ParseTime(string(h.Peek("Date")))
		s.date14 = s.at.UTC().Format(amzDate)
	}
	if err != nil {
		return badSignature.New("The request must have a time, in X-Amz-Date or Date.")
	}
	if len(h.Peek(target)) > 0 {
		needed = append(needed, "x-amz-target")
	}
	for _, name := range needed {
		if !slices.Contains(s.headers, name) {
			return badSignature.New("The SignedHeaders must contain %s.", name)
		}
	}
	if !slices.IsSorted(s.headers) || len(s.headers) > 100 {
		return badSignature.New("The SignedHeaders must be sorted.")
	}
	if s.date != s.at.UTC().Format("20060102") {
		return otherSignature.New("The date in Credential is another one than that of the request.")
	}
	return nil
}

// checkTime refuses a signature that is too old, or of a time to come.
func (s *signature) checkTime() error {
	now := time.Now().UTC()
	switch {
	case now.Sub(s.at) > mostAge:
		return otherSignature.New("Signature expired: %s is now earlier than %s (%s - 15 min.)", s.date14,
			now.Add(-mostAge).Format(amzDate), now.Format(amzDate))
	case s.at.Sub(now) > mostAge:
		return otherSignature.New("Signature not yet current: %s is still later than %s (%s + 15 min.)", s.date14,
			now.Add(mostAge).Format(amzDate), now.Format(amzDate))
	}
	return nil
}

// check compares the signature with that of the secret.
func (s *signature) check(h *fasthttp.RequestHeader, body []byte, secret string) error {
	scope := s.date + "/" + s.region + "/" + service + "/" + scopeEnd
	canonical := sha256.Sum256([]byte(s.canonical(h, body)))
	text := algorithm + "\n" + s.date14 + "\n" + scope + "\n" + hex.EncodeToString(canonical[:])
	key := []byte("AWS4" + secret)
	for _, part := range []string{s.date, s.region, service, scopeEnd} {
		key = sum(key, part)
	}
	if want := hex.EncodeToString(sum(key, text)); !hmac.Equal([]byte(want), []byte(s.mac)) {
		return otherSignature.New("The request signature we calculated does not match the signature you provided. Check " +
			"your secret access key and signing method, and that no proxy changes the Host header.")
	}
	return nil
}

func sum(key []byte, text string) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(text))
	return h.Sum(nil)
}

// canonical returns the canonical form of a request, whose query is empty: the routes take no parameters.
func (s *signature) canonical(h *fasthttp.RequestHeader, body []byte) string {
	path, query, _ := strings.Cut(string(h.RequestURI()), "?")
	var b strings.Builder
	b.WriteString(string(h.Method()))
	b.WriteString("\n" + escaped(path) + "\n" + query + "\n")
	for _, name := range s.headers {
		b.WriteString(name + ":" + headerValue(h, name) + "\n")
	}
	digest := sha256.Sum256(body)
	b.WriteString("\n" + strings.Join(s.headers, ";") + "\n" + hex.EncodeToString(digest[:]))
	return b.String()
}

// headerValue returns the canonical value of a header: blanks in a row are one, lines are joined.
func headerValue(h *fasthttp.RequestHeader, name string) string {
	if name == "host" {
		return string(h.Host())
	}
	var values []string
	for _, v := range h.PeekAll(name) {
		values = append(values, strings.Join(strings.Fields(string(v)), " "))
	}
	return strings.Join(values, ",")
}

// escaped returns a path with each byte encoded that is neither unreserved nor a slash, a percent sign too.
func escaped(path string) string {
	const digits = "0123456789ABCDEF"
	var b strings.Builder
	for i := range len(path) {
		switch c := path[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', strings.IndexByte("-_.~/", c) >= 0:
			b.WriteByte(c)
		default:
			b.WriteByte('%')
			b.WriteByte(digits[c>>4])
			b.WriteByte(digits[c&15])
		}
	}
	return b.String()
}
