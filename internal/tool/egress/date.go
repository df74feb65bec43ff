package egress

import (
	"net/http"
	"strings"
	"time"
)

// dates are the forms of dates that servers write beside those of HTTP, their zone as +0000: PHP's
// DATE_RFC2822, DATE_COOKIE and DATE_ATOM, the dates of mail, of JavaScript, Ruby, Java and Go, and
// ISO 8601. A missing zone is UTC, as in HTTP. The day of the week is not read: it decides nothing.
var dates = []string{
	"2 Jan 2006 15:04:05 -0700", "2 Jan 06 15:04:05 -0700", "2-Jan-2006 15:04:05 -0700", "2-Jan-06 15:04:05 -0700",
	"Jan 2 2006 15:04:05 -0700", "Jan 2 15:04:05 -0700 2006", "Jan 2 15:04:05 2006 -0700",
	"2006-01-02T15:04:05-0700", "2006-01-02 15:04:05 -0700",
}

// zones are the names of zones in dates of mail (RFC 5322, 4.3). Other names say no time for sure.
var zones = map[string]string{
	"GMT": "+0000", "UTC": "+0000", "UT": "+0000", "Z": "+0000", "EST": "-0500", "EDT": "-0400", "CST": "-0600",
	"CDT": "-0500",
	"MST": "-0700", "MDT": "-0600", "PST": "-0800", "PDT": "-0700",
}

// longestDate bounds the text of a date, bytes.
const longestDate = 100

// parseDate reads the time in a header, in the forms of HTTP and in those that servers send instead.
func parseDate(text string) (at time.Time, ok bool) {
	if at, err := http.ParseTime(text); err == nil {
		return at, true
	}
	if len(text) > longestDate {
		return at, false
	}
	text = plainDate(text)
	for _, form := range dates {
		for _, zone := range [...]string{"", " +0000", "+0000"} {
			if at, err := time.Parse(form, text+zone); err == nil {
				return at, true
			}
		}
	}
	return at, false
}

// plainDate returns a date without its day of the week, comments and commas, with zones as +0000.
func plainDate(text string) string {
	if i := strings.IndexByte(text, '('); i >= 0 { // GMT+0000 (Coordinated Universal Time)
		text = text[:i]
	}
	var words []string
	for _, word := range strings.Fields(strings.ReplaceAll(text, ",", " ")) {
		upper := strings.ToUpper(word)
		if upper == "Z" || len(words) > 0 || !weekday(upper) {
			if rest, isGMT := strings.CutPrefix(upper, "GMT"); isGMT && rest != "" && (rest[0] == '+' || rest[0] == '-') {
				word = rest
			} else if zone, known := zones[upper]; known {
				word = zone
			}
			words = append(words, word)
		}
	}
	if n := len(words); n > 2 && words[n-1] == "+0000" && len(words[n-2]) == 5 && (words[n-2][0] == '+' ||
		words[n-2][0] == '-') {
		words = words[:n-1] // 2026-01-31 15:04:05 +0000 UTC
	}
	text = strings.Join(words, " ")
	if head, isZ := strings.CutSuffix(strings.ToUpper(text), "Z"); isZ && len(words) <= 2 {
		text = head + "+0000"
	}
	if n := len(text); n > 6 && text[n-3] == ':' && (text[n-6] == '+' || text[n-6] == '-') {
		text = text[:n-3] + text[n-2:] // +00:00
	}
	return text
}

func weekday(upper string) bool {
	upper = strings.TrimSuffix(upper, ".")
	if len(upper) < 3 {
		return false
	}
	for _, day := range [...]string{"SUNDAY", "MONDAY", "TUESDAY", "WEDNESDAY", "THURSDAY", "FRIDAY", "SATURDAY"} {
		if strings.HasPrefix(day, upper) {
			return true
		}
	}
	return false
}
