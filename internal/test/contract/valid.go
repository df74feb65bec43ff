package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/pb33f/libopenapi"
	validator "github.com/pb33f/libopenapi-validator"
	"github.com/pb33f/libopenapi-validator/cache"
	"github.com/pb33f/libopenapi-validator/config"
	"github.com/pb33f/libopenapi-validator/errors"

	"github.com/penstock-broker/penstock/internal/model/apitype"
	"github.com/penstock-broker/penstock/internal/test/traffic"
)

// A validity checks the bodies of exchanges against their schemas, in strict mode: a member that no schema has is
// an error.
type validity struct {
	v       validator.Validator
	differs map[string]string // by what is wrong, an example
}

// A lazy is a cache that lets the validator compile a schema when a body asks for it. By itself it compiles those of
// all bodies at its start, which takes longer than the comparison.
type lazy struct {
	*cache.DefaultCache
	started bool
}

// Load implements cache.SchemaCache.
func (l *lazy) Load(key uint64) (*cache.SchemaCacheEntry, bool) {
	if !l.started {
		return nil, true // at its start the validator asks only whether there is an entry
	}
	return l.DefaultCache.Load(key)
}

func newValidity(d *document) (*validity, error) {
	doc, err := libopenapi.NewDocument(d.text)
	if err != nil {
		return nil, err
	}
	model, err := doc.BuildV3Model()
	if err != nil {
		return nil, err
	}
	schemas := &lazy{DefaultCache: cache.NewDefaultCache()}
	v := validator.NewValidatorFromV3Model(&model.Model, config.WithStrictMode(), config.WithSchemaCache(schemas),
		config.WithoutSecurityValidation(), config.WithURLEncodedBodyValidation(),
		config.WithStrictIgnoredHeadersExtra(plain...))
	schemas.started = true
	return &validity{v, map[string]string{}}, nil
}

var parameters = regexp.MustCompile(`{[^}]*}`)

// check checks an exchange whose route the document has. Headers and names of parameters are compared elsewhere.
func (c *validity) check(d *document, e traffic.Exchange) error {
	if e.Method == http.MethodHead || e.Answer.Get("Content-Encoding") != "" {
		return nil // it has no body, or one that the tests unpack themselves
	}
	// The validator finds the route by a path. That of the exchange may be one that the broker refuses.
	_, path, _ := strings.Cut(e.Route, " ")
	req, err := http.NewRequest(e.Method, "http://broker"+parameters.ReplaceAllString(path, "x"),
		bytes.NewReader(withoutNulls(e)))
	if err != nil {
		return err
	}
	req.Header = e.Headers.Clone()
	if media := sentMedia(d.at(e.Route), e); media != "" {
		req.Header.Set("Content-Type", media)
	}
	if e.Status < 400 && !e.Cut && len(e.Body) > 0 && !d.loose(e) && !partly(e) {
		_, wrong := c.v.GetRequestBodyValidator().ValidateRequestBody(req)
		c.note(e, "the request", wrong)
	}
	if e.TextCut || len(e.Text) == 0 || mediaOf(e.Answer) == lines {
		return nil
	}
	res := &http.Response{StatusCode: e.Status, Header: e.Answer.Clone(), Body: io.NopCloser(bytes.NewReader(e.Text)),
		Request: req}
	_, wrong := c.v.GetResponseBodyValidator().ValidateResponseBody(req, res)
	c.note(e, "the answer", wrong)
	return nil
}

// withoutNulls returns the body of a request without the members that are null, on routes where they count as absent.
func withoutNulls(e traffic.Exchange) []byte {
	if !slices.Contains([]string{"MoveRequest", "UpdatesRequest", "ClaimRequest"}, typeOf(e.Route)) {
		return e.Body
	}
	var v map[string]any
	if json.Unmarshal(e.Body, &v) != nil {
		return e.Body
	}
	isNull := func(_ string, one any) bool { return one == nil }
	maps.DeleteFunc(v, isNull)
	updates, _ := v["Updates"].([]any)
	for _, one := range updates {
		if one, ok := one.(map[string]any); ok {
			maps.DeleteFunc(one, isNull)
		}
	}
	body, err := json.Marshal(v)
	if err != nil {
		return e.Body
	}
	return body
}

// typeOf names the type of the request of a route in package apitype; "": it has none.
func typeOf(route string) string {
	for _, r := range apitype.Routes() {
		if r.Method+" "+r.Path == route && r.Request.Value != nil {
			return reflect.TypeOf(r.Request.Value).Name()
		}
	}
	return ""
}

// note keeps what is wrong, once for each route and kind of fault.
func (c *validity) note(e traffic.Exchange, of string, wrong []*errors.ValidationError) {
	for _, w := range wrong {
		if strings.Contains(w.Reason, "Declared properties: []") {
			continue // a map, whose members have any names; walk sees what is none
		}
		texts := []string{w.Message + ": " + w.Reason}
		if len(w.SchemaValidationErrors) > 0 {
			texts = nil
		}
		for _, f := range w.SchemaValidationErrors {
			if strings.HasPrefix(f.Reason, "additional properties") {
				continue // walk sees members that no schema has, and those in another case of letters are none
			}
			texts = append(texts, f.FieldPath+" "+f.Reason)
		}
		for _, text := range texts {
			text = strings.Join(strings.Fields(text), " ")
			what := fmt.Sprintf("%s %d, %s: %s", e.Route, e.Status, of, text[:min(len(text), 200)])
			if _, known := c.differs[what]; !known {
				c.differs[what] = e.Method + " " + e.Path
			}
		}
	}
}

// all returns what was wrong, each with an example.
func (c *validity) all() (out []string) {
	for what, example := range c.differs {
		out = append(out, fmt.Sprintf("not valid: %s (%.100q)", what, example))
	}
	slices.Sort(out)
	return out
}
