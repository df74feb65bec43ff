package hotpath

import "github.com/penstock-broker/penstock/internal/jsontext"

// appendJSONText appends s, which must be valid UTF-8, as a JSON string.
func appendJSONText[T string | []byte](b []byte, s T) []byte { return jsontext.Append(b, s) }
