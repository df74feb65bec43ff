// Package quantity reads durations and sizes as people write them. Settings, fields, headers and
// parameters share its two functions, so a spelling that one of them takes is taken by all.
package quantity

import (
	"errors"
	"math"
	"strconv"
	"strings"
	"time"
)

var (
	errDuration = errors.New("not a duration")
	errSize     = errors.New("not a size")
)

// Duration reads a duration in Go syntax, in which d, days of 24 hours, and w, weeks of 7 days,
// are units as well: 90s, 1d, 1d12h, 2w.
func Duration(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if err == nil {
		return d, nil
	}
	rest, negative := strings.CutPrefix(text, "-")
	if !negative {
		rest = strings.TrimPrefix(rest, "+")
	}
	if rest == "" || len(rest) > maxText {
		return 0, errDuration
	}
	for rest != "" {
		var part time.Duration
		if part, rest, err = firstPart(rest); err != nil || d > math.MaxInt64-part {
			return 0, errDuration
		}
		d += part
	}
	if negative {
		d = -d
	}
	return d, nil
}

// maxText bounds the text of a quantity. No duration of 292 years needs more.
const maxText = 64

const digits = "0123456789."

// firstPart reads the first number of a duration with its unit, and returns what follows them.
func firstPart(text string) (part time.Duration, rest string, err error) {
	unit := strings.TrimLeft(text, digits)
	number := text[:len(text)-len(unit)]
	if next := strings.IndexAny(unit, digits); next >= 0 {
		unit, rest = unit[:next], unit[next:]
	}
	hours := time.Duration(1)
	switch unit {
	case "d":
		unit, hours = "h", 24
	case "w":
		unit, hours = "h", 7*24
	}
	part, err = time.ParseDuration(number + unit)
	if err != nil || number == "" || part > math.MaxInt64/hours {
		return 0, "", errDuration
	}
	return part * hours, rest, nil
}

// units are the units of a size, in small letters. As in the International System of Units k, M, G
// and T are powers of 1000; with an i they are powers of 1024.
var units = map[string]int64{
	"": 1, "b": 1,
	"k": 1e3, "kb": 1e3, "ki": 1 << 10, "kib": 1 << 10,
	"m": 1e6, "mb": 1e6, "mi": 1 << 20, "mib": 1 << 20,
	"g": 1e9, "gb": 1e9, "gi": 1 << 30, "gib": 1 << 30,
	"t": 1e12, "tb": 1e12, "ti": 1 << 40, "tib": 1 << 40,
}

// Size reads a size from 1 byte to most bytes: 65536, 4MB, 4MiB, 1.5 GiB. The case of the unit does
// not matter.
func Size(text string, most int64) (int64, error) {
	text = strings.TrimSpace(text)
	unit := strings.TrimLeft(text, digits)
	number := text[:len(text)-len(unit)]
	factor, ok := units[strings.ToLower(strings.TrimSpace(unit))]
	if !ok || number == "" || len(text) > maxText {
		return 0, errSize
	}
	n, err := strconv.ParseInt(number, 10, 64)
	if err == nil && (n < 1 || n > most/factor) {
		return 0, errSize
	}
	if err == nil {
		return n * factor, nil
	}
	fraction, err := strconv.ParseFloat(number, 64)
	// no part of a byte
	if bytes := fraction * float64(factor); err == nil && factor > 1 && bytes >= 1 && bytes <= float64(most) {
		return int64(bytes), nil
	}
	return 0, errSize
}
