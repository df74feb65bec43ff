package policy

import (
	"errors"
	"strconv"
	"strings"

	"github.com/penstock-broker/penstock/internal/tool/coding"
)

// A Responses says what becomes of a consumer's answers.
type Responses uint8

// The values of Responses.
const (
	ResponsesOff      Responses = iota // only the status of an attempt counts
	ResponsesStore                     // kept with the message, for its producer to read
	ResponsesCallback                  // also delivered to the reply URL of the producer
)

var responsesNames = []string{"off", "store", "callback"}

func parseResponses(text string) (Responses, error) { return oneOf[Responses](text, responsesNames) }

// String is the inverse of parseResponses.
func (r Responses) String() string { return responsesNames[min(int(r), len(responsesNames)-1)] }

// The bounds and defaults of a stored response, bytes.
const (
	MaxResponse     = 1 << 20
	defaultResponse = 64 << 10
)

// A HeaderNames is a list of header names, in lower case and separated by commas. The last one may
// be a prefix with an asterisk. The content type is always meant.
type HeaderNames string

const (
	defaultResponseHeaders = HeaderNames("content-type,x-*")
	maxHeaderNames         = 32
)

var (
	errHeaderNames = errors.New("must be up to 32 header names, or prefixes such as x-*, separated by commas")
	errCredentials = errors.New("must not name a header of cookies or credentials, or of the broker")
)

// parseHeaderNames reads a list of names.
func parseHeaderNames(text string) (HeaderNames, error) {
	parts := strings.Split(strings.ToLower(text), ",")
	if len(parts) > maxHeaderNames || len(text) > maxHeadersBytes {
		return "", errHeaderNames
	}
	for i, part := range parts {
		parts[i] = strings.TrimSpace(part)
		name := strings.TrimSuffix(parts[i], "*")
		switch {
		case !headerName(name) || strings.Contains(name, "*"):
			return "", errHeaderNames
		case neverKept(name):
			return "", errCredentials
		}
	}
	return HeaderNames(strings.Join(parts, ",")), nil
}

// String is the inverse of parseHeaderNames.
func (h HeaderNames) String() string { return string(h) }

// Keeps reports whether a header of that name is kept: one that the list has, or says how the body
// is to be read, and never a header that may hold a cookie or a credential.
func (h HeaderNames) Keeps(name string) bool {
	name = strings.ToLower(name)
	if name == "content-type" || name == "content-encoding" || coding.Describes(name) != "" {
		return true
	}
	if neverKept(name) {
		return false
	}
	for part := range strings.SplitSeq(string(h), ",") {
		prefix, any := strings.CutSuffix(part, "*")
		if part == name || any && strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

// secretWords are parts of names of headers that hold secrets.
var secretWords = []string{"cookie", "auth", "token", "secret", "password", "credential", "api-key", "apikey",
	"session", "signature", "csrf", "xsrf"}

// neverKept reports whether a header, in lower case, may hold a cookie or a credential, or is one
// that the broker sets itself.
func neverKept(name string) bool {
	for _, word := range secretWords {
		if strings.Contains(name, word) {
			return true
		}
	}
	return hasPrefix(name, ownPrefixes)
}

// A Statuses is a list of statuses, separated by commas.
type Statuses string

const defaultAsyncStatus = Statuses("202")

var errStatuses = errors.New("must be up to 8 statuses from 200 to 299, separated by commas")

func parseStatuses(text string) (Statuses, error) {
	parts := strings.Split(text, ",")
	if len(parts) > 8 {
		return "", errStatuses
	}
	for i, part := range parts {
		parts[i] = strings.TrimSpace(part)
		if n, err := strconv.Atoi(parts[i]); err != nil || n < 200 || n > 299 || len(parts[i]) != 3 {
			return "", errStatuses
		}
	}
	return Statuses(strings.Join(parts, ",")), nil
}

// String is the inverse of parseStatuses.
func (s Statuses) String() string { return string(s) }

// Has reports whether the list has a status.
func (s Statuses) Has(status int) bool {
	for part := range strings.SplitSeq(string(s), ",") {
		if part == strconv.Itoa(status) {
			return true
		}
	}
	return false
}

// Accepted reports whether an answer of that status means that the result comes later.
func (p *Policy) Accepted(status int) bool { return p.Async && p.AsyncStatus.Has(status) }
