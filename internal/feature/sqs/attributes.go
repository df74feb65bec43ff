package sqs

import (
	"crypto/md5" //nolint:gosec // the protocol says so
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/hotpath/metadata"
	"github.com/penstock-broker/penstock/internal/tool/jsontext"
)

// Attributes of messages are metadata headers of the broker: an attribute String of a name that may be a
// header, and with a value that may be the value of one, is that header and nothing else. The other types have
// a header too, Binary in base64, and their type in the header typesHeader. An attribute that cannot be a
// header is there as a whole. So producers and consumers of the broker's own routes see attributes as headers,
// and SQS clients the headers of others as attributes.

const (
	typesHeader = "X-SQS-Attributes"
	// traceHeader carries the system attribute AWSTraceHeader.
	traceHeader = "X-Amzn-Trace-Id"
	// bodyEncoding is the attribute of a message whose payload is no text: its body is base64.
	bodyEncoding = "PayloadEncoding"
	// mostAttributes is the number of attributes of a message.
	mostAttributes = 10
)

// A typed is what typesHeader has of an attribute: its type, and its value where that is no header.
type typed struct {
	Type  string
	Value *string `json:",omitempty"` // of Binary: base64
}

var (
	attributeName = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,256}$`)
	dataType      = regexp.MustCompile(`^(String|Number|Binary)(\..{1,249})?$`)
	number        = regexp.MustCompile(`^[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d{1,3})?$`)
)

// checkAttribute refuses an attribute as SQS does.
func checkAttribute(name string, a attribute) error {
	lower := strings.ToLower(name)
	switch {
	case !attributeName.MatchString(name), strings.HasPrefix(name, "."), strings.HasSuffix(name, "."),
		strings.Contains(name, ".."), strings.HasPrefix(lower, "aws."), strings.HasPrefix(lower, "amazon."):
		return badValue.New("The message attribute name %.64q is invalid. Attribute name can contain A-Z, a-z, 0-9, "+
			"underscore (_), hyphen (-), and period (.) characters, up to 256, and begin with no AWS. or Amazon.", name)
	case a.DataType == "":
		return badValue.New("The message attribute '%s' must contain a non-empty message attribute type.", name)
	case !dataType.MatchString(a.DataType):
		return badValue.New("The message attribute '%s' has an invalid message attribute type, the set of supported type "+
			"prefixes is Binary, Number, and String.", name)
	case a.StringListValues != nil || a.BinaryListValues != nil:
		return unsupported.New("Message attribute list values are not supported.")
	}
	if a.binary() {
		if a.StringValue != nil || len(a.BinaryValue) == 0 {
			return badValue.New("The message attribute '%s' with type 'Binary' must use field 'Binary', non-empty.", name)
		}
		return nil
	}
	base, _, _ := strings.Cut(a.DataType, ".")
	switch {
	case a.BinaryValue != nil || a.StringValue == nil || *a.StringValue == "":
		return badValue.New("The message attribute '%s' must contain a non-empty value of type '%s'.", name, base)
	case !text(*a.StringValue):
		return badContents.New("The message attribute '%s' has invalid characters. Valid are #x9 | #xA | #xD | #x20 to "+
			"#xD7FF | #xE000 to #xFFFD | #x10000 to #x10FFFF.", name)
	case base == "Number" && (len(*a.StringValue) > 200 || !number.MatchString(*a.StringValue)):
		return badValue.New("Can't cast the value of message attribute '%s' to a number.", name)
	}
	return nil
}

func (a attribute) binary() bool {
	return a.DataType == "Binary" || strings.HasPrefix(a.DataType, "Binary.")
}

// value returns the value as text: of Binary, base64.
func (a attribute) value() string {
	if a.binary() {
		return base64.StdEncoding.EncodeToString(a.BinaryValue)
	}
	return *a.StringValue
}

// headersOf returns the headers that carry attributes, which were checked.
func headersOf(attributes map[string]attribute, trace, tokenHeader string) (map[string]string, error) {
	headers, types := map[string]string{}, map[string]typed{}
	taken := map[string]bool{folded(typesHeader): true, folded(traceHeader): true}
	for _, name := range slices.Sorted(maps.Keys(attributes)) {
		a := attributes[name]
		value := a.value()
		if key := folded(name); taken[key] || metadata.Reserved(name, tokenHeader) || !headerText(value) {
			types[name] = typed{a.DataType, &value}
		} else {
			taken[key], headers[name] = true, value
			if a.DataType != "String" {
				types[name] = typed{Type: a.DataType}
			}
		}
	}
	if len(types) > 0 {
		b, err := json.Marshal(types)
		if err != nil {
			return nil, err
		}
		headers[typesHeader] = strings.ReplaceAll(string(b), "\x7f", `\u007f`)
	}
	if trace != "" {
		headers[traceHeader] = trace
	}
	return headers, nil
}

// headerText reports whether a header can have the value, unchanged.
func headerText(value string) bool {
	return strings.Trim(value, " \t") == value && !strings.ContainsFunc(value, func(r rune) bool {
		return r < ' ' || r == 0x7f || r == utf8.RuneError
	})
}

// folded returns the name as servers compare the names of headers, see package metadata.
func folded(name string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, strings.ToLower(name))
}

// attributesOf returns the attributes of a stored message, and its AWSTraceHeader.
func attributesOf(stored []byte) (attributes map[string]attribute, trace string) {
	attributes = map[string]attribute{}
	var types map[string]typed
	for name, value := range metadata.Headers(stored) {
		switch name {
		case typesHeader:
			if json.Unmarshal([]byte(value), &types) != nil {
				types = nil // another producer's
			}
			continue
		case traceHeader:
			trace = value
			continue
		case durable.OrderingHeader, durable.TaskHeader:
			continue
		}
		value = jsontext.HeaderText(value)
		if a := (attribute{DataType: "String", StringValue: &value}); checkAttribute(name, a) == nil {
			attributes[name] = a
		}
	}
	for name, t := range types {
		a := attribute{DataType: t.Type, StringValue: t.Value}
		if t.Value == nil {
			header, ok := attributes[name]
			if !ok {
				continue
			}
			a.StringValue = header.StringValue
		}
		if a.binary() {
			b, err := base64.StdEncoding.DecodeString(*a.StringValue)
			if err != nil {
				continue
			}
			a.StringValue, a.BinaryValue = nil, b
		}
		if checkAttribute(name, a) == nil {
			attributes[name] = a
		}
	}
	return attributes, trace
}

// wanted returns the attributes that a receiver asks for by names, prefixes or All.
func wanted(attributes map[string]attribute, names []string) map[string]attribute {
	out := map[string]attribute{}
	for name, a := range attributes {
		if slices.ContainsFunc(names, func(pattern string) bool {
			prefix, ok := strings.CutSuffix(pattern, ".*")
			return pattern == name || pattern == "All" || pattern == ".*" ||
				ok && (name == prefix || strings.HasPrefix(name, prefix+"."))
		}) {
			out[name] = a
		}
	}
	return out
}

// md5Of returns the MD5 of a text, in hex.
func md5Of(text string) string {
	sum := md5.Sum([]byte(text)) //nolint:gosec // see above
	return hex.EncodeToString(sum[:])
}

// md5OfAttributes returns the MD5 of attributes as SQS defines it, "" for none.
func md5OfAttributes(attributes map[string]attribute) string {
	if len(attributes) == 0 {
		return ""
	}
	var b []byte
	put := func(text string) {
		b = binary.BigEndian.AppendUint32(b, uint32(len(text)))
		b = append(b, text...)
	}
	for _, name := range slices.Sorted(maps.Keys(attributes)) {
		a := attributes[name]
		put(name)
		put(a.DataType)
		if a.binary() {
			b = append(b, 2)
			put(string(a.BinaryValue))
		} else {
			b = append(b, 1)
			put(*a.StringValue)
		}
	}
	return md5Of(string(b))
}

// text reports whether SQS takes a text: UTF-8 without the characters that XML has not.
func text(s string) bool {
	for i, r := range s {
		switch {
		case r == utf8.RuneError:
			if _, size := utf8.DecodeRuneInString(s[i:]); size == 1 {
				return false
			}
		case r < ' ' && r != '\t' && r != '\n' && r != '\r', r == 0xfffe, r == 0xffff:
			return false
		}
	}
	return true
}
