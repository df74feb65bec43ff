package api

import (
	"maps"
	"mime"
	"net/url"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/internal/model/apitype"
	"github.com/penstock-broker/penstock/internal/model/policy"
	"github.com/penstock-broker/penstock/internal/model/problem"
)

const (
	formType      = apitype.MediaForm
	maxFormBytes  = 64 << 10 // far above the longest valid form, and cheap to parse
	maxNameBytes  = 255      // width of the column
	maxTokenBytes = 255      // width of the column
)

// The fields of each form. parseForm refuses every other field, and so does parseJSON.
var (
	producerFields = append([]string{"name", "token", "publishSecret"}, policy.SenderNames()...)
	channelFields  = append([]string{"name", "token", "group", "store"}, policy.IntakeNames()...)
	groupFields    = append([]string{"name"}, policy.GroupNames()...)
	consumerFields = append([]string{"name", "token", "callbackUrl", "type", "protocol", "since"}, policy.Names()...)
	redriveFields  = []string{"requeue"}
)

// The bodies that routes take, as a form or as JSON.
var (
	producerBody = bodyKind{fields: producerFields, shown: membersOf(apitype.Producer{})}
	channelBody  = bodyKind{fields: channelFields, shown: membersOf(apitype.Channel{})}
	groupBody    = bodyKind{fields: groupFields, shown: membersOf(apitype.Group{})}
	consumerBody = bodyKind{fields: consumerFields, shown: membersOf(apitype.Consumer{}), policy: policy.Names()}
	redriveBody  = bodyKind{fields: redriveFields}
)

// A form is a decoded form body in which no field occurs twice and each is known.
type form map[string]string

// of returns those of some fields that the form has.
func (f form) of(names []string) map[string]string {
	fields := map[string]string{}
	for _, name := range names {
		if value, ok := f[name]; ok {
			fields[name] = value
		}
	}
	return fields
}

// A document is a decoded body: the fields of a form, and what a body of JSON has beside them.
type document struct {
	form
	json      bool
	id        string          // "": it shows none
	inherited map[string]bool // fields that it shows and does not set
}

var errMediaType = problem.New(fasthttp.StatusUnsupportedMediaType, "unsupported_media_type",
	"The body must be "+apitype.MediaJSON+" in UTF-8, or "+formType+".")

// readForm decodes the body of a PUT or POST. It ignores the query string, because access logs would
// contain a token in a URL. A request without a body sets nothing.
func readForm(ctx *fasthttp.RequestCtx, kind *bodyKind) (document, error) {
	contentType, body := ctx.Request.Header.ContentType(), ctx.PostBody()
	if len(contentType) == 0 && len(body) == 0 {
		return document{form: form{}}, nil
	}
	mediaType, params, err := mime.ParseMediaType(string(contentType))
	charset := params["charset"]
	switch {
	case err != nil:
	case mediaType == formType:
		f, err := parseForm(body, kind.fields)
		return document{form: f}, err
	case mediaType == apitype.MediaJSON && (charset == "" || strings.EqualFold(charset, "utf-8")):
		return kind.parseJSON(body)
	}
	return document{}, errMediaType
}

// noForm refuses a form on a route that takes none. A caller that sends "until" to pause would take a
// success for more than it is.
func noForm(ctx *fasthttp.RequestCtx) error {
	if len(ctx.PostBody()) == 0 {
		return nil
	}
	_, err := readForm(ctx, &bodyKind{})
	if p := problem.From(err); err != nil && p.Status == fasthttp.StatusUnsupportedMediaType {
		return nil // neither a form nor JSON, so it asks for nothing
	}
	return err
}

var errFormSize = problem.New(fasthttp.StatusRequestEntityTooLarge, "body_too_large",
	"The body may have at most 65536 bytes.")

func parseForm(body []byte, fields []string) (form, error) {
	if len(body) > maxFormBytes {
		return nil, errFormSize
	}
	values, err := url.ParseQuery(string(body))
	if err != nil { // err quotes the input, which may be a token
		return nil, badlyEncoded(string(body), fields)
	}
	f := make(form, len(values))
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if !slices.Contains(fields, name) {
			return nil, unknownField(name, fields)
		}
		if len(values[name]) != 1 {
			return nil, problem.Newf(fasthttp.StatusBadRequest, "duplicate_field", "The form field %s occurs more than once.",
				name)
		}
		f[name] = values[name][0]
	}
	return f, nil
}

// badlyEncoded refuses a form that is not well encoded. It names the field if it is a known one.
func badlyEncoded(body string, fields []string) error {
	for pair := range strings.SplitSeq(body, "&") {
		name, value, _ := strings.Cut(pair, "=")
		if _, err := url.QueryUnescape(value); (err != nil || strings.Contains(value, ";")) && slices.Contains(fields, name) {
			return problem.Newf(fasthttp.StatusBadRequest, "invalid_form",
				"The form field %s is not well encoded. A percent sign in a value is written %%25, a semicolon %%3B.", name)
		}
	}
	return problem.New(fasthttp.StatusBadRequest, "invalid_form", "The form is not well encoded.")
}

// maxShownName is the number of bytes of an unknown field's name that the refusal quotes.
const maxShownName = 40

// unknownField refuses a field that would have no effect. The refusal does not quote the
// value. The name may be the rest of a value in which & was not encoded.
func unknownField(name string, fields []string) error {
	meant := ""
	if len(fields) == 0 {
		return problem.Newf(fasthttp.StatusBadRequest, "unknown_field",
			"The body has a field %+q, and this route takes none.", quoted(name))
	}
	if best := problem.Nearest(name, fields); best != "" {
		meant = "Did you mean " + best + "? "
	} else if strings.HasPrefix(strings.TrimSpace(name), "{") {
		meant = "JSON needs Content-Type: " + apitype.MediaJSON + ". "
	}
	return problem.Newf(fasthttp.StatusBadRequest, "unknown_field",
		"The form has a field %+q, which this route does not take. %sIts fields are %s. An ampersand in a value is "+
			"written %%26.",
		quoted(name), meant, strings.Join(fields, ", "))
}

// field returns a form field, nil when it is absent.
func (f form) field(name string) *string {
	value, ok := f[name]
	if !ok {
		return nil
	}
	return &value
}

// name returns the field "name"; nil, which keeps the stored name, when it is
// absent or empty.
func (f form) name() (*string, error) {
	name := f.field("name")
	if name == nil || *name == "" {
		return nil, nil
	}
	if len(*name) > maxNameBytes {
		return nil, problem.New(fasthttp.StatusBadRequest, "invalid_name", "The name may have at most 255 bytes.")
	}
	if !utf8.ValidString(*name) {
		return nil, problem.New(fasthttp.StatusBadRequest, "invalid_name", "The name must be UTF-8.")
	}
	for _, r := range *name {
		if unicode.IsControl(r) {
			return nil, problem.New(fasthttp.StatusBadRequest, "invalid_name", "The name may not hold control characters.")
		}
	}
	return name, nil
}

// token returns the field "token"; nil, which keeps the stored token, when it
// is absent or empty: an empty token would be no secret.
func (f form) token() (*string, error) {
	token := f.field("token")
	if token == nil || *token == "" {
		return nil, nil
	}
	if len(*token) > maxTokenBytes || !visibleASCII(*token) {
		return nil, problem.New(fasthttp.StatusBadRequest, "invalid_token",
			"The token must be 1 to 255 visible ASCII characters without spaces: it travels in a header.")
	}
	return token, nil
}

// visibleASCII reports whether every byte of s can be part of a header value
// and is not blank.
func visibleASCII[T string | []byte](s T) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}
