package publish

import (
	"time"

	"github.com/penstock-broker/penstock/internal/model/problem"
	"github.com/penstock-broker/penstock/internal/tool/quantity"
)

// ttlHeader is the time to live of a message. In a batch it is that of each line without a TTL
// of its own.
const ttlHeader = "X-Broker-Message-TTL"

// Bounds of the time to live of a message.
const (
	leastTTL = 100 * time.Millisecond
	mostTTL  = 8760 * time.Hour
)

var (
	errTTL = problem.New(400, "invalid_ttl", ttlHeader+" must be a duration from 100ms to 8760h, like 90s; nothing "+
		"was stored.")
	errLineTTL = problem.New(400, "invalid_ttl", "TTL must be a string with a duration from 100ms to 8760h, like 90s.")
)

// parseTTL reads a time to live, in milliseconds; absent is 0.
func parseTTL(b []byte, refusal error) (int64, error) {
	if len(b) == 0 {
		return 0, nil
	}
	d, err := quantity.Duration(string(b))
	if err != nil || d < leastTTL || d > mostTTL {
		return 0, refusal
	}
	return d.Milliseconds(), nil
}

func (d *Draft) setTTL(text []byte) (err error) {
	refusal := errLineTTL
	if d.request {
		refusal = errTTL
	}
	d.TTLMs, err = parseTTL(text, refusal)
	return err
}

// readTTL reads a string with a duration.
func (d *Draft) readTTL() error {
	text, err := d.in.text()
	if err != nil || len(text) == 0 {
		return errLineTTL
	}
	return d.setTTL(text)
}
