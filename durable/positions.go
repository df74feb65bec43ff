package durable

import (
	"database/sql/driver"
	"fmt"
)

// Positions is a set of positions of consumers: position p is bit 0x80 >> p%8 of byte p/8. The
// empty text stands for NULL in a column, which is not the empty set there; NoPositions is that.
type Positions string

// NoPositions is a set without a position.
const NoPositions Positions = "\x00"

// Has reports whether the set has a position.
func (p Positions) Has(position int) bool {
	at := position >> 3
	return at < len(p) && p[at]&(0x80>>(position&7)) != 0
}

// A PositionSet collects positions. The zero value is empty.
type PositionSet struct{ b []byte }

// Add adds a position.
func (s *PositionSet) Add(position int) {
	for len(s.b) <= position>>3 {
		s.b = append(s.b, 0)
	}
	s.b[position>>3] |= 0x80 >> (position & 7)
}

// Positions returns the set, "" where nothing was added.
func (s *PositionSet) Positions() Positions { return Positions(s.b) }

// maxPositionBytes is the width of the columns.
const maxPositionBytes = 8192

// column returns the value of a column: NULL for "".
func (p Positions) column() any {
	if p == "" {
		return nil
	}
	return []byte(p)
}

// appendColumn is column for the text of a statement.
func (p Positions) appendColumn(b []byte) []byte {
	if p == "" {
		return append(b, `NULL`...)
	}
	return appendHex(b, []byte(p))
}

// asPositions is a set in a column, where NULL is the empty text.
type asPositions struct{ *Positions }

// Scan implements sql.Scanner.
func (d asPositions) Scan(v any) error {
	switch b := v.(type) {
	case nil:
		*d.Positions = ""
	case []byte:
		*d.Positions = Positions(b)
	default:
		return fmt.Errorf("stored positions are %T", v)
	}
	return nil
}

// Value implements driver.Valuer.
func (d asPositions) Value() (driver.Value, error) { return d.column(), nil }

// digitsWith are, for each bit of a hexadecimal digit from the highest on, the digits that have it.
var digitsWith = [4][8]string{
	{"8", "9", "A", "B", "C", "D", "E", "F"},
	{"4", "5", "6", "7", "C", "D", "E", "F"},
	{"2", "3", "6", "7", "A", "B", "E", "F"},
	{"1", "3", "5", "7", "9", "B", "D", "F"},
}

// hasPosition is the condition that a column, which is not NULL, has a position. Its arguments are
// those of appendHasPosition. All servers have these functions, and a digit beyond the set is ”.
func hasPosition(column string) string {
	return `SUBSTR(HEX(` + column + `), ?, 1) IN (?, ?, ?, ?, ?, ?, ?, ?)`
}

func appendHasPosition(args []any, position int) []any {
	args = append(args, position>>2+1)
	for _, digit := range digitsWith[position&3] {
		args = append(args, digit)
	}
	return args
}
