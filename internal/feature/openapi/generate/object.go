package main

import (
	"bytes"
	"encoding/json"
)

// An object is a JSON object whose members keep their order.
type object []member

// A member is one name of an object with its value.
type member struct {
	name  string
	value any
}

// add appends a member.
func (o *object) add(name string, value any) { *o = append(*o, member{name, value}) }

// addText appends a text, unless it is empty.
func (o *object) addText(name, text string) {
	if text != "" {
		o.add(name, text)
	}
}

// MarshalJSON implements json.Marshaler.
func (o object) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, m := range o {
		if i > 0 {
			b.WriteByte(',')
		}
		name, err := encode(m.name)
		if err != nil {
			return nil, err
		}
		value, err := encode(m.value)
		if err != nil {
			return nil, err
		}
		b.Write(name)
		b.WriteByte(':')
		b.Write(value)
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// encode returns v as JSON, with markup characters as they are.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return bytes.TrimSpace(b.Bytes()), err
}

// reference is the object that stands for a part of the document.
func reference(kind, name string) object {
	return object{{"$ref", "#/components/" + kind + "/" + name}}
}
