package bulk

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/valyala/fasttemplate"

	"github.com/penstock-broker/penstock/internal/model/apitype"
	"github.com/penstock-broker/penstock/internal/model/problem"
	"github.com/penstock-broker/penstock/internal/tool/jsonread"
	"github.com/penstock-broker/penstock/internal/tool/jsontext"
)

// templateNames are the members of a template: those of a line, without the consumers.
var templateNames = func() (names []string) {
	for _, f := range reflect.VisibleFields(reflect.TypeFor[apitype.BulkTemplate]()) {
		names = append(names, f.Name)
	}
	return names
}()

// members returns the names of the members that the template sets, as columns of a row, and their
// texts.
func members(t *apitype.BulkTemplate) (names, texts []string) {
	v := reflect.ValueOf(*t)
	for _, name := range templateNames {
		switch text := v.FieldByName(name); {
		case text.Kind() != reflect.String: // Headers
		case text.Len() > 0, name == "Payload" && t.PayloadBase64 == "":
			names, texts = append(names, name), append(texts, text.String())
		}
	}
	for name, text := range t.Headers {
		if text != "" {
			names, texts = append(names, "Header:"+name), append(texts, text)
		}
	}
	return names, texts
}

// A compiled template fills the members of a message from the cells of a row.
type compiled struct {
	names []string // of the members
	texts []*fasttemplate.Template
	plain []string // of a member without a column; else ""
	tags  []string // that the texts use, each once
	out   bytes.Buffer
	cells []string
}

const tagBegin, tagEnd, jsonTag = "{{", "}}", "json "

// mostColumns bounds the columns of CSV, the members of a row that fills a template, and the columns
// that a template names: each takes memory and time besides its text.
const mostColumns = 1024

var (
	errManyTags = problem.Newf(400, "invalid_template", "The template names columns at more than %d places.",
		mostColumns)
	errManyColumns = problem.Newf(400, "invalid_columns", "The first line has more than %d columns.", mostColumns)
	errManyCells   = problem.Newf(400, "invalid_line", "The row has more than %d cells or members.", mostColumns)
)

func compile(t *apitype.BulkTemplate) (*compiled, error) {
	c := &compiled{}
	names, texts := members(t)
	tags := 0
	for i, text := range texts {
		if tags += strings.Count(text, tagBegin); tags > mostColumns {
			return nil, errManyTags
		}
		parsed, err := fasttemplate.NewTemplate(text, tagBegin, tagEnd)
		if err != nil {
			return nil, problem.Newf(400, "invalid_template", "Template.%s has a {{ without }}.", names[i])
		}
		_, _ = parsed.ExecuteFunc(io.Discard, func(_ io.Writer, tag string) (int, error) {
			if !slices.Contains(c.tags, tag) {
				c.tags = append(c.tags, tag)
			}
			return 0, nil
		})
		if !strings.Contains(text, tagBegin) {
			parsed = nil
		}
		c.names, c.texts, c.plain = append(c.names, names[i]), append(c.texts, parsed), append(c.plain, text)
	}
	c.cells = make([]string, len(c.names))
	return c, nil
}

// check refuses a template that names a column which is not there.
func (c *compiled) check(columns []string) error {
	for _, tag := range c.tags {
		if name, _ := column(tag, func(name string) bool { return slices.Contains(columns, name) }); name == "" {
			return unknownColumn(tag)
		}
	}
	return nil
}

func unknownColumn(tag string) error {
	return problem.Newf(400, "invalid_template", "The template names the column %q, and there is none.",
		strings.ToValidUTF8(tag[:min(len(tag), 64)], ""))
}

// column returns the column that a tag names, and whether it is quoted as JSON.
func column(tag string, has func(string) bool) (name string, quote bool) {
	tag = strings.TrimSpace(tag)
	if has(tag) {
		return tag, false
	}
	if rest, ok := strings.CutPrefix(tag, jsonTag); ok {
		if rest = strings.TrimSpace(rest); has(rest) {
			return rest, true
		}
	}
	return "", false
}

// A cell is the value of a column: text, or other JSON.
type cell struct {
	text string
	json bool // text is JSON of another type than string
}

// fill returns the members of the message of a row, valid until the next call. most bounds their
// bytes together: a column may occur often in a template.
func (c *compiled) fill(row map[string]cell, most int) ([]string, error) {
	left := most
	for i, text := range c.texts {
		if text == nil {
			c.cells[i] = c.plain[i]
			continue
		}
		c.out.Reset()
		_, err := text.ExecuteFunc(&c.out, func(w io.Writer, tag string) (int, error) {
			name, quote := column(tag, func(name string) bool { _, ok := row[name]; return ok })
			if name == "" {
				return 0, unknownColumn(tag)
			}
			value := row[name]
			if c.out.Len()+len(value.text) > left {
				return 0, problem.Newf(413, "body_too_large", "The message that the template makes of the row is larger than "+
					"this broker accepts.")
			}
			if quote && !value.json {
				if !utf8.ValidString(value.text) {
					return 0, problem.New(400, "invalid_line", fmt.Sprintf("The cell of the column %q is not UTF-8.", name))
				}
				return w.Write(jsontext.Append(nil, value.text))
			}
			return io.WriteString(w, value.text)
		})
		if err != nil {
			return nil, err
		}
		left -= c.out.Len()
		c.cells[i] = c.out.String()
	}
	return c.cells, nil
}

var errNoRow = problem.New(400, "invalid_line", "The row is not a JSON object.")

// object returns the members of a JSON object as cells.
func object(line []byte) (map[string]cell, error) {
	r := jsonread.Open(line)
	defer r.Close()
	row := map[string]cell{}
	err := r.Object(func(name []byte) error {
		if _, twice := row[string(name)]; twice {
			return problem.Newf(400, "invalid_line", "The row has the member %+q twice.", cut(string(name)))
		}
		if len(row) == mostColumns && len(line) > readAhead {
			return errManyCells
		}
		if r.Null() {
			row[string(name)] = cell{}
			return nil
		}
		isText := r.Kind() == '"'
		read := r.Value
		if isText {
			read = r.Text
		}
		value, err := read()
		row[string(name)] = cell{text: string(value), json: !isText}
		return err
	})
	if err == nil {
		err = r.End()
	}
	var wrong *jsonread.Error
	switch {
	case err == nil:
		return row, nil
	case !errors.As(err, &wrong):
		return nil, err
	case wrong.Reason != "":
		return nil, problem.New(400, "invalid_line", "The row "+wrong.Reason+".")
	}
	return nil, errNoRow
}
