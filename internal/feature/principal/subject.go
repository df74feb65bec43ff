package principal

import (
	"crypto/x509"
	"encoding/asn1"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// An attribute is one of a subject: its type as a dotted number, and its value.
type attribute struct{ oid, value string }

// types are the attributes that an entry may name, by the short names of RFC 4514 and of openssl.
var types = map[string]string{
	"CN":           "2.5.4.3",
	"SERIALNUMBER": "2.5.4.5",
	"C":            "2.5.4.6",
	"L":            "2.5.4.7",
	"ST":           "2.5.4.8",
	"STREET":       "2.5.4.9",
	"O":            "2.5.4.10",
	"OU":           "2.5.4.11",
	"POSTALCODE":   "2.5.4.17",
	"UID":          "0.9.2342.19200300.100.1.1",
	"DC":           "0.9.2342.19200300.100.1.25",
	"EMAILADDRESS": "1.2.840.113549.1.9.1",
}

// parseSubject reads a distinguished name: TYPE=VALUE, between commas.
func parseSubject(text string) ([]attribute, error) {
	var all []attribute
	for _, part := range split(text, ',') {
		at := index(part, '=')
		if at < 0 {
			return nil, fmt.Errorf("%q in its subject is no TYPE=VALUE", cut(strings.TrimSpace(part)))
		}
		name := strings.ToUpper(strings.TrimSpace(part[:at]))
		oid := types[name]
		if oid == "" {
			return nil, fmt.Errorf("%q in its subject is no type of attribute; those are CN, O, OU, L, ST, C, STREET, "+
				"POSTALCODE, SERIALNUMBER, UID, DC and EMAILADDRESS", cut(name))
		}
		if index(part, '+') >= 0 {
			return nil, errors.New(`a + in its subject has no backslash before it; attributes are separated by commas`)
		}
		value, err := unescape(strings.TrimSpace(part[at+1:]))
		if err != nil {
			return nil, err
		}
		if value == "" {
			return nil, fmt.Errorf("the %s in its subject is empty", name)
		}
		all = append(all, attribute{oid, value})
	}
	return all, nil
}

// unescape reads a value: a backslash is before a character that stands for itself, or before two hex digits.
func unescape(text string) (string, error) {
	var out strings.Builder
	for i := 0; i < len(text); i++ {
		if text[i] != '\\' {
			out.WriteByte(text[i])
			continue
		}
		rest := text[i+1:]
		if len(rest) >= 2 {
			if b, err := hex.DecodeString(rest[:2]); err == nil {
				out.WriteByte(b[0])
				i += 2
				continue
			}
		}
		if rest == "" {
			return "", errors.New(`its subject ends with a backslash`)
		}
		out.WriteByte(rest[0])
		i++
	}
	return out.String(), nil
}

// split cuts a text at each separator without a backslash before it.
func split(text string, separators ...byte) (parts []string) {
	from := 0
	for i := 0; i < len(text); i++ {
		switch {
		case text[i] == '\\':
			i++
		case slices.Contains(separators, text[i]):
			parts, from = append(parts, text[from:i]), i+1
		}
	}
	return append(parts, text[from:])
}

// index returns where a character first is without a backslash before it; -1: nowhere.
func index(text string, c byte) int {
	if first := split(text, c)[0]; len(first) < len(text) {
		return len(first)
	}
	return -1
}

// subjectOf returns the attributes of a certificate. ok: it has one common name at most, so that no two programs
// read another one in it.
func subjectOf(cert *x509.Certificate) (all []attribute, ok bool) {
	commonNames := 0
	for _, name := range cert.Subject.Names {
		value, text := name.Value.(string)
		if !text {
			continue
		}
		if name.Type.Equal(asn1.ObjectIdentifier{2, 5, 4, 3}) {
			commonNames++
		}
		all = append(all, attribute{name.Type.String(), value})
	}
	return all, commonNames <= 1
}

// cut bounds what an error repeats.
func cut(text string) string { return text[:min(len(text), 64)] }
