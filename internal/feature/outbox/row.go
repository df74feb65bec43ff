package outbox

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	penstock "github.com/penstock-broker/penstock/clients/go"
)

// A row is one of the table.
type row struct {
	id        int64
	channel   string
	payload   []byte
	headers   sql.NullString // a JSON object of texts
	priority  sql.NullInt64
	messageID sql.NullString
	attempts  int64
}

// message is the row as a message, of the table of that name.
func (r *row) message(table string) (m penstock.Message, err error) {
	m = penstock.Message{ID: r.messageID.String, Payload: r.payload, Priority: int(r.priority.Int64)}
	if m.ID == "" {
		m.ID = fmt.Sprintf("outbox:%s:%d", table, r.id)
	}
	if r.headers.String == "" {
		return m, nil
	}
	var headers map[string]string
	if err := json.Unmarshal([]byte(r.headers.String), &headers); err != nil {
		return m, fmt.Errorf("the column headers must be a JSON object of texts: %w", err)
	}
	for name, value := range headers {
		if err := setHeader(&m, name, value); err != nil {
			return m, err
		}
	}
	return m, nil
}

// setHeader sets a header of the row: those that a publish of the broker knows are what they are there, the others
// go to the consumers.
func setHeader(m *penstock.Message, name, value string) (err error) {
	switch strings.ToLower(name) {
	case "content-type":
		m.ContentType = value
	case "content-encoding":
		m.ContentEncoding = value
	case "x-broker-task":
		m.Task = value
	case "x-broker-ordering-key":
		m.OrderingKey = value
	case "x-broker-message-ttl":
		m.TTL, err = length(value)
	case "x-broker-delay":
		m.Delay, err = length(value)
	case "x-broker-consumers":
		for _, k := range strings.Split(value, ",") {
			m.Consumers = append(m.Consumers, strings.TrimSpace(k))
		}
	default:
		if strings.HasPrefix(strings.ToLower(name), "x-broker-") {
			return fmt.Errorf("the header %.64q cannot be set by a row", name)
		}
		if m.Headers == nil {
			m.Headers = map[string]string{}
		}
		m.Headers[name] = value
	}
	if err != nil {
		return fmt.Errorf("the header %s: %w", name, err)
	}
	return nil
}

// length reads a time as the broker does: 90s, or a number of seconds.
func length(text string) (time.Duration, error) {
	if n, err := strconv.ParseInt(text, 10, 32); err == nil {
		return time.Duration(n) * time.Second, nil
	}
	return time.ParseDuration(text)
}
