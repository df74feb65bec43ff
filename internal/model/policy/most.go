package policy

import (
	"errors"
	"strconv"
	"strings"

	"github.com/penstock-broker/penstock/internal/tool/quantity"
)

// A Most is a bound on what a producer stores. The zero value is that of the installation.
type Most struct {
	set bool
	n   int64
}

// maxMost is the highest bound.
const maxMost = 1 << 50

var errMost = errors.New("must be a whole number from 0 to 1125899906842624; 0: no bound")

var errBytes = errors.New("must be a whole number from 0 to 1125899906842624, or a size like 10GiB; 0: no bound")

// parseBytes is parseMost for bytes, which may also be a size with a unit.
func parseBytes(text string) (Most, error) {
	if m, err := parseMost(text); err == nil {
		return m, nil
	}
	n, err := quantity.Size(text, maxMost)
	if err != nil {
		return Most{}, errBytes
	}
	return Most{true, n}, nil
}

func parseMost(text string) (Most, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 || n > maxMost || strings.HasPrefix(text, "+") {
		return Most{}, errMost
	}
	return Most{true, n}, nil
}

// Or returns the bound, usual where none is set. 0: there is none.
func (m Most) Or(usual int64) int64 {
	if m.set {
		return m.n
	}
	return usual
}

// String is the inverse of parseMost, "" where none is set.
func (m Most) String() string {
	if !m.set {
		return ""
	}
	return strconv.FormatInt(m.n, 10)
}
