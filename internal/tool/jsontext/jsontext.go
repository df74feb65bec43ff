// Package jsontext writes payloads as JSON strings: they are large, and encoding/json
// would hold several copies of each.
package jsontext

const hexDigits = "0123456789abcdef"

// Append appends s as a JSON string. s must be valid UTF-8. It escapes
// what JSON wants escaped and nothing else, in one pass over runs of plain bytes.
func Append[T string | []byte](b []byte, s T) []byte {
	return append(AppendEscaped(append(b, '"'), s), '"')
}

// AppendEscaped is Append without the quotes. The pieces of a text may be escaped one by one,
// wherever they are cut.
func AppendEscaped[T string | []byte](b []byte, s T) []byte {
	start := 0
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c >= 0x20 && c != '"' && c != '\\' {
			continue
		}
		b = append(b, s[start:i]...)
		start = i + 1
		switch c {
		case '"', '\\':
			b = append(b, '\\', c)
		case '\n':
			b = append(b, '\\', 'n')
		case '\r':
			b = append(b, '\\', 'r')
		case '\t':
			b = append(b, '\\', 't')
		default:
			b = append(b, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&0xf])
		}
	}
	return append(b, s[start:]...)
}

// Size returns how many bytes Append appends.
func Size[T string | []byte](s T) int {
	size := len(s) + 2
	for i := range len(s) {
		size += int(longer[s[i]])
	}
	return size
}

// longer is how many bytes more than itself a byte becomes.
var longer = func() (t [256]uint8) {
	for c := range 0x20 {
		t[c] = 5
	}
	t['\n'], t['\r'], t['\t'], t['"'], t['\\'] = 1, 1, 1, 1, 1
	return t
}()
