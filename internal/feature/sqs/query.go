package sqs

import (
	"bytes"
	"encoding/base64"
	"encoding/xml"
	"maps"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/valyala/fasthttp"
)

// queryProtocol is the older protocol of SQS: a form with the member Action, answered with XML. Lists and maps
// are flat: AttributeName.1, Attribute.1.Name, and in an answer elements beside each other. The types are
// those of the JSON protocol, whose tags have the names of their elements here.
type queryProtocol struct{}

const (
	mediaXML  = "text/xml"
	mediaForm = "application/x-www-form-urlencoded"
	namespace = "http://queue.amazonaws.com/doc/2012-11-05/"
)

func (queryProtocol) action(*fasthttp.RequestCtx) (string, error) { return "", nil }

func (queryProtocol) actionIn(body []byte) (string, error) {
	form, err := parseForm(body)
	if err != nil {
		return "", err
	}
	if form["Action"] == "" {
		return "", badAction.New("The request has no Action.")
	}
	return form["Action"], nil
}

// mostParameters bounds the parameters of a request: ten entries, with ten attributes of four each.
const mostParameters = 1000

func parseForm(body []byte) (map[string]string, error) {
	if bytes.Count(body, []byte("&")) >= mostParameters {
		return nil, malformed.New("The form has more than %d parameters.", mostParameters)
	}
	values, err := url.ParseQuery(string(body))
	if err != nil {
		return nil, malformed.New("The body is not a well encoded form.")
	}
	form := make(map[string]string, len(values))
	for name, all := range values {
		switch {
		case len(all) != 1:
			return nil, malformed.New("The parameter %.64q occurs more than once.", name)
		case !utf8.ValidString(name) || !utf8.ValidString(all[0]):
			return nil, malformed.New("The parameter %.64q is not UTF-8.", name)
		}
		form[name] = all[0]
	}
	return form, nil
}

// ofEach are the parameters that each action takes, which mean nothing here.
var ofEach = []string{"Action", "Version", "AWSAccessKeyId", "SignatureVersion", "SignatureMethod", "Timestamp",
	"Expires"}

func (queryProtocol) decode(body []byte, into any) error {
	form, err := parseForm(body)
	if err != nil {
		return err
	}
	for _, name := range ofEach {
		delete(form, name)
	}
	if err := fill(form, "", reflect.ValueOf(into).Elem()); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(form)) {
		if form[name] == "" { // an empty list
			continue
		}
		return unsupported.New("The parameter %.64q is not supported here.", name)
	}
	return nil
}

// nameOf returns the name of a field in the query protocol.
func nameOf(f reflect.StructField) string {
	if name := f.Tag.Get("query"); name != "" {
		return name
	}
	return f.Name
}

// below returns a form with a prefix that has parameters, and removes nothing.
func below(form map[string]string, prefix string) bool {
	for name := range form {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

// fill sets the fields of a struct from the parameters with a prefix, and removes those.
func fill(form map[string]string, prefix string, v reflect.Value) error {
	for i := range v.NumField() {
		f, field := v.Type().Field(i), v.Field(i)
		if f.Anonymous {
			if err := fill(form, prefix, field); err != nil {
				return err
			}
			continue
		}
		name := prefix + nameOf(f)
		var err error
		switch field.Kind() {
		case reflect.Map:
			err = fillMap(form, name, field)
		case reflect.Slice:
			if field.Type().Elem().Kind() == reflect.Uint8 {
				err = fillValue(form, name, field)
			} else {
				err = fillList(form, name, field)
			}
		default:
			err = fillValue(form, name, field)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// fillValue sets a text, a number or bytes.
func fillValue(form map[string]string, name string, v reflect.Value) error {
	text, ok := form[name]
	if !ok {
		return nil
	}
	delete(form, name)
	switch p := v.Addr().Interface().(type) {
	case *string:
		*p = text
	case **string:
		*p = &text
	case **int:
		n, err := strconv.Atoi(text)
		if err != nil {
			return invalid(strconv.Quote(text[:min(len(text), 64)]), name, "Must be an integer.")
		}
		*p = &n
	case *[]byte:
		b, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			return invalid("", name, "Must be base64.")
		}
		*p = b
	}
	return nil
}

// fillList appends the elements name.1, name.2 and so on.
func fillList(form map[string]string, name string, v reflect.Value) error {
	for i := 1; ; i++ {
		element := name + "." + strconv.Itoa(i)
		_, is := form[element]
		if !is && !below(form, element+".") {
			return nil
		}
		e := reflect.New(v.Type().Elem()).Elem()
		var err error
		if e.Kind() == reflect.Struct {
			err = fill(form, element+".", e)
		} else {
			err = fillValue(form, element, e)
		}
		if err != nil {
			return err
		}
		v.Set(reflect.Append(v, e))
	}
}

// keyNames are the names of the keys of a map: tags call them otherwise.
var keyNames = []string{".Name", ".Key"}

// fillMap sets the entries name.1.Name with name.1.Value and so on.
func fillMap(form map[string]string, name string, v reflect.Value) error {
	for i := 1; ; i++ {
		entry := name + "." + strconv.Itoa(i)
		key, ok := "", false
		for _, suffix := range keyNames {
			if text, is := form[entry+suffix]; is {
				key, ok = text, true
				delete(form, entry+suffix)
			}
		}
		if !ok {
			return nil
		}
		if v.IsNil() {
			v.Set(reflect.MakeMap(v.Type()))
		}
		if v.MapIndex(reflect.ValueOf(key)).IsValid() {
			return invalid(strconv.Quote(key[:min(len(key), 64)]), name, "The name occurs twice.")
		}
		e := reflect.New(v.Type().Elem()).Elem()
		var err error
		if e.Kind() == reflect.Struct {
			err = fill(form, entry+".Value.", e)
		} else {
			err = fillValue(form, entry+".Value", e)
		}
		if err != nil {
			return err
		}
		v.SetMapIndex(reflect.ValueOf(key), e)
	}
}

func (queryProtocol) answer(_ *fasthttp.RequestCtx, c *call, out any) error {
	var b bytes.Buffer
	b.WriteString(xml.Header + "<" + c.action + `Response xmlns="` + namespace + `">`)
	if out != nil {
		b.WriteString("<" + c.action + "Result>")
		b.Write(xmlOf(reflect.ValueOf(out).Elem()))
		b.WriteString("</" + c.action + "Result>")
	}
	b.WriteString("<ResponseMetadata>")
	element(&b, "RequestId", requestID(c.rc))
	b.WriteString("</ResponseMetadata></" + c.action + "Response>")
	return c.respond(mediaXML, b.Bytes())
}

// element writes an element with a text.
func element(b *bytes.Buffer, name, text string) {
	b.WriteString("<" + name + ">")
	_ = xml.EscapeText(b, []byte(text)) // a Buffer takes everything
	b.WriteString("</" + name + ">")
}

// xmlOf returns the fields of an answer as XML.
func xmlOf(v reflect.Value) []byte {
	var b bytes.Buffer
	write(&b, v)
	return b.Bytes()
}

// write writes the fields of a struct that are set.
func write(b *bytes.Buffer, v reflect.Value) {
	for i := range v.NumField() {
		f, field := v.Type().Field(i), v.Field(i)
		if !f.IsExported() {
			continue
		}
		omit := strings.HasSuffix(f.Tag.Get("json"), ",omitempty") && field.IsZero()
		if !omit {
			writeValue(b, nameOf(f), field)
		}
	}
}

func writeValue(b *bytes.Buffer, name string, v reflect.Value) {
	switch x := v.Interface().(type) {
	case string:
		element(b, name, x)
		return
	case *string:
		if x != nil {
			element(b, name, *x)
		}
		return
	case bool:
		element(b, name, strconv.FormatBool(x))
		return
	case []byte:
		element(b, name, base64.StdEncoding.EncodeToString(x))
		return
	}
	switch v.Kind() {
	case reflect.Slice:
		for i := range v.Len() {
			writeValue(b, name, v.Index(i))
		}
	case reflect.Map:
		keys := v.MapKeys()
		slices.SortFunc(keys, func(x, y reflect.Value) int { return strings.Compare(x.String(), y.String()) })
		for _, key := range keys {
			b.WriteString("<" + name + ">")
			element(b, "Name", key.String())
			writeValue(b, "Value", v.MapIndex(key))
			b.WriteString("</" + name + ">")
		}
	case reflect.Struct:
		b.WriteString("<" + name + ">")
		write(b, v)
		b.WriteString("</" + name + ">")
	}
}

func (queryProtocol) fail(rc *fasthttp.RequestCtx, _ string, f *Fault) {
	whose := "Sender"
	if !f.sender() {
		whose = "Receiver"
	}
	var b bytes.Buffer
	b.WriteString(xml.Header + `<ErrorResponse xmlns="` + namespace + `"><Error>`)
	element(&b, "Type", whose)
	element(&b, "Code", f.Code)
	element(&b, "Message", f.Message)
	b.WriteString("<Detail/></Error>")
	element(&b, "RequestId", requestID(rc))
	b.WriteString("</ErrorResponse>")
	failHead(rc, f, mediaXML)
	rc.Response.SetBodyRaw(b.Bytes())
}
