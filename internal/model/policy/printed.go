package policy

import "strings"

// Printed returns the settings of a record for people who may not see its secrets: in the place of a secret is its
// fingerprint. The values of extra headers count as secrets, because some people put them there.
func Printed(record string, fingerprint func(secret string) string) map[string]string {
	set := decode(record)
	for name, text := range set {
		switch {
		case name == "headers":
			lines := strings.Split(text, "\n")
			for i, line := range lines {
				if header, value, ok := strings.Cut(line, ":"); ok {
					lines[i] = header + ": " + fingerprint(strings.TrimSpace(value))
				} else {
					lines[i] = fingerprint(line)
				}
			}
			set[name] = strings.Join(lines, "\n")
		case fields.secret(name) || senderFields.secret(name) || intakeFields.secret(name):
			set[name] = fingerprint(text)
		case strings.Contains(text, "://"):
			set[name] = PrintedURL(text, fingerprint)
		}
	}
	return set
}

// PrintedURL returns a URL with a fingerprint of its query, which may have a token.
func PrintedURL(text string, fingerprint func(secret string) string) string {
	if at := strings.IndexByte(text, '?'); at >= 0 {
		return text[:at+1] + fingerprint(text[at+1:])
	}
	return text
}
