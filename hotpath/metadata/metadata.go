// Package metadata carries headers of a producer's request to the consumers. It defines which names
// may be carried, how headers are stored, and how a delivery sets them.
package metadata

import (
	"bytes"
	"iter"
	"slices"
	"sort"
	"strings"

	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/problem"
	"github.com/penstock-broker/penstock/internal/tool/coding"
)

// ListHeader names the metadata headers of a request.
const ListHeader = "X-Broker-Metadata-Headers"

// Bounds of the metadata that a producer may attach to a message.
const (
	MaxNames = 64
	maxBytes = 8 << 10
)

// Headers yields the metadata headers stored with a message.
func Headers(stored []byte) iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		for line := range bytes.SplitSeq(stored, []byte{'\n'}) {
			name, value, ok := bytes.Cut(line, []byte{':'})
			if ok && !yield(string(name), string(value)) {
				return
			}
		}
	}
}

// Set sets the metadata headers of a message on a delivery. If there are any, it also sets the
// sorted list of their names. It omits a name that was stored before it became reserved or before
// tokenHeader was set to it.
func Set(h *fasthttp.RequestHeader, stored []byte, tokenHeader string) {
	var names []string
	for name, value := range Headers(stored) {
		switch name {
		case durable.OrderingHeader, coding.Header, durable.TaskHeader: // the broker has stored them in front
			h.Set(name, value)
			continue
		}
		if Reserved(name, tokenHeader) {
			continue
		}
		h.SetCanonical([]byte(name), []byte(value)) // Set would change the case of the name
		names = append(names, name)
	}
	if len(names) > 0 {
		slices.Sort(names)
		h.Set(ListHeader, strings.Join(names, ","))
	}
}

// Collect reads the headers in the list and returns them in stored form. It omits absent and
// reserved headers. header returns the value of a name, and whether it is present: it may be
// empty. Collect refuses two names that a server may treat as the same header, because the
// server would then decide which value the consumer sees. It refuses a value with a control
// character, which only a batch line can contain: CR LF would begin another header, and
// consumers and HTTP/2 refuse requests with the others.
func Collect(list []byte, tokenHeader string, header func(string) ([]byte, bool)) ([]byte, error) {
	if len(list) == 0 {
		return nil, nil
	}
	var out []byte
	names := 0
	seen := map[string]string{} // by folded name
	for part := range bytes.SplitSeq(list, []byte{','}) {
		name := string(bytes.TrimSpace(part))
		if name == "" {
			continue
		}
		if !isToken(name) {
			return nil, errName
		}
		if Reserved(name, tokenHeader) {
			continue
		}
		value, present := header(name)
		if !present {
			continue
		}
		folded := foldedName(name)
		if earlier, ok := seen[folded]; ok && !strings.EqualFold(earlier, name) {
			return nil, problem.Newf(400, "invalid_metadata_headers", "%s and %s are the same header to many servers: only "+
				"one of them can be carried.", earlier, name)
		} else if ok {
			continue
		}
		seen[folded] = name
		if names++; names > MaxNames || len(out)+len(name)+len(value) > maxBytes {
			return nil, ErrSize
		}
		if bytes.ContainsFunc(value, controls) {
			return nil, errByte
		}
		out = append(out, name...)
		out = append(out, ':')
		out = append(out, value...)
		out = append(out, '\n')
	}
	return out, nil
}

// Of returns the headers of a request for Collect. Several lines of a name are one value, with commas
// (RFC 9110, 5.3).
func Of(h *fasthttp.RequestHeader) func(name string) ([]byte, bool) {
	return func(name string) ([]byte, bool) {
		value := joined(h, name)
		if len(value) > 0 {
			return value, true
		}
		for have := range h.All() {
			if strings.EqualFold(string(have), name) {
				return nil, true
			}
		}
		return nil, false
	}
}

func joined(h *fasthttp.RequestHeader, name string) []byte {
	lines := h.PeekAll(name)
	switch len(lines) {
	case 0:
		return nil
	case 1:
		return lines[0]
	}
	return bytes.Join(lines, []byte(", "))
}

func controls(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }

var (
	errName = problem.New(400, "invalid_metadata_headers", "X-Broker-Metadata-Headers is a comma separated list of "+
		"header names.")
	ErrSize = problem.Newf(400, "invalid_metadata_headers", "At most %d metadata headers of %d bytes in all are carried.",
		MaxNames, maxBytes)
	errByte = problem.New(400, "invalid_metadata_headers", "A metadata header holds a control character.")
)

// Merge returns the metadata of a batch line. The line's own headers replace and extend those of
// the request. Names new in the line follow in sorted order.
func Merge(stored []byte, own map[string]string, tokenHeader string) ([]byte, error) {
	all, names := map[string]string{}, []string{}
	spelt := map[string]int{} // index in names
	for name, value := range Headers(stored) {
		all[strings.ToLower(name)] = value
		spelt[strings.ToLower(name)] = len(names)
		names = append(names, name)
	}
	more := make([]string, 0, len(own))
	for name, value := range own {
		if !isToken(name) { // in the list it would read as two names or as a different one
			return nil, problem.Newf(400, "invalid_metadata_headers", "Headers has the name %.64q, which is no name of an "+
				"HTTP header.", name)
		}
		if i, known := spelt[strings.ToLower(name)]; known {
			names[i] = name // a name is spelt as the line does
		} else {
			more = append(more, name)
		}
		all[strings.ToLower(name)] = value
	}
	sort.Strings(more)
	list := strings.Join(append(names, more...), ",")
	return Collect([]byte(list), tokenHeader, func(name string) ([]byte, bool) {
		value, present := all[strings.ToLower(name)]
		return []byte(value), present
	})
}

// isToken reports whether s is a token of RFC 9110, the syntax of a header name, of at most 256
// bytes.
func isToken(s string) bool {
	if s == "" || len(s) > 256 {
		return false
	}
	for i := range len(s) {
		c := s[i]
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' ||
			strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0 {
			continue
		}
		return false
	}
	return true
}
