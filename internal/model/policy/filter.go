package policy

import (
	"strings"

	"github.com/penstock-broker/penstock/internal/model/filter"
)

// A Filter is an expression of package filter. Empty: every message.
type Filter string

func parseFilter(text string) (Filter, error) {
	if text == "" {
		return "", nil
	}
	if filter.Of(text) == nil { // the record of a consumer is read often, and its filter is compiled once
		if _, err := filter.New(text); err != nil {
			return "", err
		}
	}
	return Filter(text), nil
}

// String is the inverse of parseFilter.
func (f Filter) String() string { return string(f) }

// FilterOf returns the filter in the record of a consumer, nil where it has none.
func FilterOf(record string) *filter.Filter {
	if !strings.Contains(record, `"filter"`) {
		return nil
	}
	text := decode(record)["filter"]
	if text == "" {
		return nil
	}
	return filter.Of(text)
}
