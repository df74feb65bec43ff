package publish

import (
	"github.com/penstock-broker/penstock/internal/model/problem"
	"github.com/penstock-broker/penstock/redisq"
)

var errPriority = problem.Newf(400, "invalid_priority", "The priority must be an integer from 0 to %d.",
	redisq.MaxPriority)

func (d *Draft) setPriority(text []byte) (err error) {
	d.Priority, err = parsePriority(text)
	return err
}

// readPriority reads a non-negative integer in JSON syntax: no sign, no leading zeros.
func (d *Draft) readPriority() error {
	digits := d.in.number()
	if len(digits) == 0 || len(digits) > 1 && digits[0] == '0' {
		return errPriority
	}
	return d.setPriority(digits)
}

// parsePriority reads an integer 0..1023; absent is 0.
func parsePriority(b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	n := 0
	for _, c := range b {
		if c < '0' || c > '9' || len(b) > 4 {
			n = redisq.MaxPriority + 1
			break
		}
		n = n*10 + int(c-'0')
	}
	if n > redisq.MaxPriority {
		return 0, errPriority
	}
	return n, nil
}
