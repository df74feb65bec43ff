package accept

import (
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/hotpath/metadata"
	"github.com/penstock-broker/penstock/internal/catalogue"
	"github.com/penstock-broker/penstock/internal/problem"
)

// RowDefaults are the values of the rows of a bulk that do not set their own. They are stored with
// the bulk.
type RowDefaults struct {
	Priority     int    `json:",omitempty"`
	TTLMs        int64  `json:",omitempty"`
	Headers      []byte `json:",omitempty"`
	Addressed    []byte `json:",omitempty"` // durable.Positions
	ScheduledFor string `json:",omitempty"`
	Recurrence   string `json:",omitempty"`
	DelayMs      int64  `json:",omitempty"`
}

// RowDefaults reads the defaults from the headers of a request to a channel, as those of a batch.
func (p *Publisher) RowDefaults(h *fasthttp.RequestHeader, ch *catalogue.Channel) (RowDefaults, error) {
	m, err := p.lineDefaults(h, ch)
	if err != nil {
		return RowDefaults{}, err
	}
	t, err := timesOf(h)
	return RowDefaults{m.Priority, m.TTLMs, m.Headers, []byte(m.Addressed), t.at, t.recurrence, t.delay.Milliseconds()}, err
}

// Rows make messages from the rows of one bulk.
type Rows struct{ lineMaker }

// A Row is the message of a row, or its schedule.
type Row struct {
	Message *durable.Message
	Later   *durable.Scheduled
}

// Rows returns the maker of messages of a producer in a channel. createdMs is when the bulk
// came: a scheduled message is for a later time, however long its row waits, and a delay counts from
// then. So a row that is read again, by another broker after a crash, has the same time.
func (p *Publisher) Rows(channelNo, producerNo uint32, d RowDefaults, createdMs int64) (*Rows, error) {
	ch, producer := p.catalogue.ChannelByNo(channelNo), p.catalogue.ProducerByNo(producerNo)
	switch {
	case ch == nil || ch.Deleted:
		return nil, catalogue.ErrUnknownChannel
	case producer == nil || producer.Deleted:
		return nil, catalogue.ErrUnknownProducer
	}
	return &Rows{lineMaker{p: p, sender: sender{ch: ch, producer: producer}, nowMs: func() int64 { return createdMs }, times: times{d.ScheduledFor, d.Recurrence, time.Duration(d.DelayMs) * time.Millisecond},
		defaults: durable.Message{Priority: d.Priority, TTLMs: d.TTLMs, ContentType: defaultContentType, Headers: d.Headers, Addressed: durable.Positions(d.Addressed)}}}, nil
}

// Longest returns how many bytes a row may have: about those of a payload of the largest size in
// base64 or with escapes, and the other members.
func (p *Publisher) Longest() int { return 2*p.maxBody + 16<<10 }

// Line returns what a row becomes that is a line of a batch.
func (r *Rows) Line(text []byte) (Row, error) { return rowOf(r.line(text)) }

// Record returns what a row becomes that has a cell for each column. An empty cell is an absent
// member, but an empty payload.
func (r *Rows) Record(columns, cells []string) (Row, error) {
	l := r.unset()
	for i, name := range columns {
		if err := l.set(name, cells[i]); err != nil {
			return Row{}, err
		}
	}
	if !l.hasPayload && !slices.ContainsFunc(columns, isPayload) {
		return Row{}, errNoPayload
	}
	return rowOf(r.made(&l))
}

func rowOf(l line, err error) (Row, error) { return Row{l.msg, l.later}, err }

var errNoPayload = problem.New(400, "invalid_columns", "The columns must include Payload or PayloadBase64.")

// headerColumn begins the name of a column with a metadata header.
const headerColumn = "Header:"

func isPayload(column string) bool { return column == "Payload" || column == "PayloadBase64" }

// CheckColumns refuses columns that are no members of a line.
func CheckColumns(columns []string) error {
	if err := CheckNames(columns); err != nil {
		return err
	}
	for _, name := range columns {
		if header, ok := strings.CutPrefix(name, headerColumn); ok && header != "" {
			continue
		}
		if name == "Headers" || !slices.Contains(lineMembers[:], name) {
			return problem.Newf(400, "invalid_columns", "There is no column %s; the columns are Payload or PayloadBase64, MessageID, Priority, TTL, ContentType, ContentEncoding, OrderingKey, ScheduledFor, Delay, Recurrence, Consumers and Header:<name>.", quoted(name))
		}
	}
	if !slices.ContainsFunc(columns, isPayload) {
		return errNoPayload
	}
	return nil
}

// CheckNames refuses column names that a template could not tell apart.
func CheckNames(columns []string) error {
	seen := map[string]bool{}
	for i, name := range columns {
		switch {
		case name == "":
			return problem.Newf(400, "invalid_columns", "Column %d has no name.", i+1)
		case !utf8.ValidString(name):
			return problem.Newf(400, "invalid_columns", "The name of column %d is not UTF-8.", i+1)
		case seen[name]:
			return problem.Newf(400, "invalid_columns", "The column %s occurs twice.", quoted(name))
		}
		seen[name] = true
	}
	return nil
}

// quoted returns a name of the client for a refusal, in bounds.
func quoted(name string) string {
	return fmt.Sprintf("%q", strings.ToValidUTF8(name[:min(len(name), longestQuote)], ""))
}

var (
	errCellText    = problem.New(400, "invalid_line", "A cell of the row is not UTF-8.")
	errTwoPayloads = problem.New(400, "invalid_payload", "The row has a Payload and a PayloadBase64.")
)

// set sets a member from a cell.
func (l *batchLine) set(name, cell string) (err error) {
	switch {
	case !utf8.ValidString(cell) && name == "Payload":
		return errPayloadText
	case !utf8.ValidString(cell):
		return errCellText
	case cell == "":
		return nil
	}
	switch name {
	case "Payload", "PayloadBase64":
		return l.setPayload(name, cell)
	case "MessageID":
		l.messageID, err = cell, checkID(cell)
	case "ContentType":
		l.contentType, err = cell, checkContentType(cell)
	case "ContentEncoding":
		l.encoding, err = cleanCoding(cell)
	case "OrderingKey":
		l.orderingKey, err = cell, checkOrderingKey(cell)
	case "Priority":
		l.priority, err = parsePriority([]byte(cell))
	case "TTL":
		l.ttlMs, err = parseTTL([]byte(cell), errLineTTL)
	case "ScheduledFor":
		l.times.at, l.ownAt = cell, true
	case "Delay":
		err = l.setDelay(cell)
	case "Recurrence":
		l.times.recurrence = cell
	case "Consumers":
		l.consumers = namesIn([]string{}, cell)
	default:
		err = l.setHeader(strings.TrimPrefix(name, headerColumn), cell)
	}
	return err
}

func (l *batchLine) setPayload(name, cell string) (err error) {
	if l.hasPayload {
		return errTwoPayloads
	}
	l.hasPayload = true
	if name == "Payload" {
		l.payload = []byte(cell)
		return nil
	}
	if strings.ContainsAny(cell, "\r\n") { // the decoder ignores them
		return errPayloadBase64
	}
	if l.payload, err = base64.StdEncoding.Strict().DecodeString(cell); err != nil {
		return errPayloadBase64
	}
	return nil
}

func (l *batchLine) setHeader(name, value string) error {
	if l.headers == nil {
		l.headers = map[string]string{}
	}
	for have := range l.headers {
		if strings.EqualFold(have, name) {
			return errHeaderTwice
		}
	}
	if len(l.headers) == metadata.MaxNames {
		return metadata.ErrSize
	}
	l.headers[name] = value
	return nil
}

// CheckConstant refuses members that are the same in each row and never right. Those with an empty
// text are not checked. The name of a header is checked as well.
func CheckConstant(names, texts []string) error {
	var l batchLine
	for i, name := range names {
		if err := l.set(name, texts[i]); err != nil {
			return err
		}
		if header, ok := strings.CutPrefix(name, headerColumn); ok {
			if err := checkLineHeaders(map[string]string{header: ""}, ""); err != nil {
				return err
			}
		}
	}
	return nil
}
