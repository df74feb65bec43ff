package publish

import "github.com/penstock-broker/penstock/internal/model/problem"

var errOrdering = problem.New(400, "invalid_ordering_key", "X-Broker-Ordering-Key must be 1 to 255 bytes, without "+
	"control characters and without blanks around it.")

// setOrderingKey sets the ordering key. A line may say that it has none.
func (d *Draft) setOrderingKey(text []byte) error {
	d.orderingKey = string(text)
	if len(text) == 0 {
		return nil
	}
	return checkOrderingKey(text)
}

// checkOrderingKey refuses what could not be sent on as a header, unchanged.
func checkOrderingKey(key []byte) error {
	if len(key) == 0 || len(key) > 255 || key[0] == ' ' || key[len(key)-1] == ' ' {
		return errOrdering
	}
	for i := range len(key) {
		if key[i] < 0x20 || key[i] == 0x7f {
			return errOrdering
		}
	}
	return nil
}
