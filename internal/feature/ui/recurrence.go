package ui

import (
	"fmt"
	"strconv"
	"strings"
)

var weekdays = []string{"Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"}

// recurs says in words how often the messages of a schedule come: "each day at 08:00 UTC". What it has no words for
// it says as it was written. "": once.
func recurs(text string) string {
	if fields, ok := strings.CutPrefix(text, "cron:"); ok {
		if words := cronWords(fields); words != "" {
			return words
		}
	}
	if rest, ok := strings.CutPrefix(text, "R"); ok {
		parts := strings.Split(rest, "/")
		if len(parts) == 3 {
			often := "each " + parts[2] + " from " + parts[1]
			if n, err := strconv.Atoi(parts[0]); err == nil {
				return plural(n, "time") + ", " + often
			}
			return often + ", without end"
		}
	}
	return text
}

// cronWords says five fields of cron in words; "": there are none for them.
func cronWords(text string) string {
	zone := " UTC"
	for _, name := range []string{"CRON_TZ=", "TZ="} {
		if rest, ok := strings.CutPrefix(text, name); ok {
			in, fields, _ := strings.Cut(rest, " ")
			zone, text = " in "+in, fields
			break
		}
	}
	f := strings.Fields(text)
	if len(f) != 5 || f[3] != "*" {
		return ""
	}
	every := f[1] == "*" && f[2] == "*" && f[4] == "*"
	minute, plain := numberIn(f[0], 59)
	step, stepped := strings.CutPrefix(f[0], "*/")
	switch {
	case every && f[0] == "*":
		return "each minute"
	case every && stepped:
		if n, ok := numberIn(step, 59); ok && n > 0 && 60%n == 0 {
			return "each " + plural(n, "minute")
		}
		return ""
	case every && plain:
		return "each hour at minute " + strconv.Itoa(minute)
	}
	hour, ok := numberIn(f[1], 23)
	if !plain || !ok {
		return ""
	}
	at := fmt.Sprintf(" at %02d:%02d", hour, minute) + zone
	day, monthly := numberIn(f[2], 31)
	switch days := daysIn(f[4]); {
	case f[2] == "*" && f[4] == "*":
		return "each day" + at
	case f[2] == "*" && days != "":
		return days + at
	case monthly && day > 0 && f[4] == "*":
		return "on day " + strconv.Itoa(day) + " of each month" + at
	}
	return ""
}

// daysIn says a day of the week, or a range of them; "": it is neither.
func daysIn(field string) string {
	first, last, ranged := strings.Cut(field, "-")
	from, ok := numberIn(first, 6)
	if !ok {
		return ""
	}
	if !ranged {
		return "each " + weekdays[from]
	}
	to, ok := numberIn(last, 6)
	if !ok || to <= from {
		return ""
	}
	return weekdays[from] + " to " + weekdays[to]
}

// numberIn reads a number of digits up to a largest one.
func numberIn(text string, most int) (n int, ok bool) {
	n, err := strconv.Atoi(text)
	return n, err == nil && n >= 0 && n <= most && strings.Trim(text, "0123456789") == ""
}
