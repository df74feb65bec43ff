package api

import (
	"mime"
	"net/url"
	"unicode"
	"unicode/utf8"

	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/problem"
)

const (
	formType      = "application/x-www-form-urlencoded"
	maxFormBytes  = 64 << 10 // far above the longest legal form, far below what hurts to parse
	maxNameBytes  = 255      // width of the column
	maxTokenBytes = 255      // width of the column
)

// A form is a decoded form body in which no field occurs twice.
type form map[string]string

// readForm decodes the body of a PUT or POST. Nothing of the query string
// counts: a token in a URL would end up in access logs.
func readForm(ctx *fasthttp.RequestCtx) (form, error) {
	mediaType, _, err := mime.ParseMediaType(string(ctx.Request.Header.ContentType()))
	if err != nil || mediaType != formType {
		return nil, problem.New(fasthttp.StatusUnsupportedMediaType, "unsupported_media_type",
			"The body must be "+formType+".")
	}
	return parseForm(ctx.PostBody())
}

func parseForm(body []byte) (form, error) {
	if len(body) > maxFormBytes {
		return nil, problem.New(fasthttp.StatusRequestEntityTooLarge, "body_too_large",
			"A form may have at most 65536 bytes.")
	}
	values, err := url.ParseQuery(string(body))
	if err != nil { // its text quotes the input, which may be a token
		return nil, problem.New(fasthttp.StatusBadRequest, "invalid_form", "The form is not well encoded.")
	}
	f := make(form, len(values))
	for name, list := range values {
		if len(list) != 1 {
			return nil, problem.New(fasthttp.StatusBadRequest, "duplicate_field", "A form field occurs more than once.")
		}
		f[name] = list[0]
	}
	return f, nil
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
// is absent or empty: an empty token would be one that everybody knows.
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
