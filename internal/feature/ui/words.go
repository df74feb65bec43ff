package ui

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// mostText is the most bytes of a text of others in a list.
const mostText = 200

// number writes a number with a narrow blank between thousands.
func number(n any) string {
	var text string
	switch n := n.(type) {
	case int:
		text = strconv.Itoa(n)
	case *int:
		if n == nil {
			return "–"
		}
		text = strconv.Itoa(*n)
	case int64:
		text = strconv.FormatInt(n, 10)
	case float64:
		text = decimal(n)
	default:
		return fmt.Sprint(n)
	}
	whole, rest, has := strings.Cut(text, ".")
	sign := ""
	if strings.HasPrefix(whole, "-") {
		sign, whole = "-", whole[1:]
	}
	for at := len(whole) - 3; at > 0; at -= 3 {
		whole = whole[:at] + "\u202f" + whole[at:]
	}
	if has {
		rest = "." + rest
	}
	return sign + whole + rest
}

// decimal writes a measure with two or three digits that say something.
func decimal(f float64) string {
	digits := 0
	switch {
	case f != 0 && f < 1:
		digits = 2
	case f != 0 && f < 10:
		digits = 1
	}
	text := strconv.FormatFloat(f, 'f', digits, 64)
	if strings.Contains(text, ".") {
		text = strings.TrimRight(strings.TrimRight(text, "0"), ".")
	}
	return text
}

// plural is "1 thing" or "n things".
func plural(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return number(n) + " " + thing + "s"
}

// small are the numbers that a sentence spells out.
var small = []string{"No", "One", "Two", "Three", "Four", "Five", "Six", "Seven", "Eight", "Nine", "Ten", "Eleven",
	"Twelve"}

// spelled begins a sentence with a number.
func spelled(n int) string {
	if n < len(small) {
		return small[n]
	}
	return number(n)
}

// age writes a span of time with one unit.
func age(d time.Duration) string {
	switch {
	case d < time.Second:
		return "less than 1 s"
	case d < 2*time.Minute:
		return strconv.Itoa(int(d.Seconds())) + " s"
	case d < 2*time.Hour:
		return strconv.Itoa(int(d.Minutes())) + " min"
	case d < 48*time.Hour:
		return strconv.Itoa(int(d.Hours())) + " h"
	}
	return strconv.Itoa(int(d.Hours()/24)) + " d"
}

// clock writes a time in UTC: without the date where it is of the last or the next half day.
func clock(t, now time.Time) string {
	if d := now.Sub(t); d < -12*time.Hour || d > 12*time.Hour {
		return t.UTC().Format("2006-01-02 15:04:05")
	}
	return t.UTC().Format("15:04:05")
}

// iso writes a time as the API does.
func iso(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }

// cut shortens a text to so many bytes, at the end, and says so with three dots.
func cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	end := most
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + "…"
}

// short shortens an ID in the middle, whose begin and end tell it from others.
func short(id string) string {
	if len(id) <= 28 {
		return id
	}
	return id[:14] + "…" + id[len(id)-10:]
}
