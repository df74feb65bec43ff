package publish

import (
	"math/bits"
	"strings"
	"unicode/utf8"
	"unsafe"

	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/hotpath/metadata"
	"github.com/penstock-broker/penstock/internal/model/problem"
	"github.com/penstock-broker/penstock/internal/tool/coding"
)

// A property is one thing that a producer says of a message.
type property struct {
	member string // of a line of a batch, column of CSV, and member of a template; "": only requests say it
	header string // of a request; "": it is the body
	kind   kind
	// parse sets the property from its text. It copies what it keeps of the text.
	parse func(d *Draft, text []byte) error
	// json reads the value of a member. nil: a string, which parse takes.
	json func(d *Draft) error
	// read reads the header of a request. nil: parse takes its value, if it is not empty.
	read func(d *Draft, h *fasthttp.RequestHeader) error
	// each refuses the header in a batch, whose lines have values of their own.
	each error
}

// A kind is what a property is about.
type kind uint8

const (
	payload  kind = 1 << iota // the payload itself
	identity                  // what makes two messages the same
	body                      // the encoding of the payload
	content                   // anything else; in a batch the default of each line
	when                      // when the message is sent; in a batch the default of each line
)

// The properties that requests read from their headers.
const (
	ofMessage  = identity | body | content | when
	ofLines    = content | when
	ofSchedule = body | content | when // of one that exists, which keeps its identity
)

// properties are all properties of a message. Each way in reads them from here: the headers of a
// request, the lines of a batch, the rows of a bulk and its template. A property that is not here is
// refused, with the nearest one that is.
var properties = [...]property{
	{member: "Payload", kind: payload, parse: (*Draft).setText, json: (*Draft).readText},
	{member: "PayloadBase64", kind: payload, parse: (*Draft).setBase64, json: (*Draft).readBase64},
	{member: "MessageID", header: "X-Broker-Message-ID", kind: identity, each: errLinesID, parse: (*Draft).setID},
	{header: keyHeader, kind: identity, each: errBatchKey, read: (*Draft).readKey},
	{member: "Priority", header: "X-Broker-Message-Priority", kind: content, parse: (*Draft).setPriority,
		json: (*Draft).readPriority},
	{member: "TTL", header: ttlHeader, kind: content, parse: (*Draft).setTTL, json: (*Draft).readTTL},
	{member: "ContentType", header: fasthttp.HeaderContentType, kind: body, parse: (*Draft).setContentType},
	{member: "ContentEncoding", header: coding.Header, kind: body, parse: (*Draft).setEncoding,
		read: (*Draft).readEncoding},
	{member: "OrderingKey", header: durable.OrderingHeader, kind: content, parse: (*Draft).setOrderingKey},
	{member: "Task", header: durable.TaskHeader, kind: content, parse: (*Draft).setTask},
	{member: "ScheduledFor", header: scheduledHeader, kind: when, parse: (*Draft).setScheduledFor,
		read: once(scheduledHeader, (*Draft).setScheduledFor)},
	{member: "Delay", header: delayHeader, kind: when, parse: (*Draft).setDelay, json: (*Draft).readDelay,
		read: once(delayHeader, (*Draft).setDelay)},
	{member: "Recurrence", header: recurrenceHeader, kind: when, parse: (*Draft).setRecurrence,
		read: once(recurrenceHeader, (*Draft).setRecurrence)},
	{member: "Consumers", header: consumersHeader, kind: content, parse: (*Draft).setConsumers,
		json: (*Draft).readConsumers, read: (*Draft).readConsumersHeader},
	{member: "Headers", header: metadata.ListHeader, kind: content, json: (*Draft).readHeaders,
		read: (*Draft).readMetadata},
}

// errLine refuses a line that is malformed as a whole. Its detail names the members, see init.
var errLine = problem.New(400, "invalid_line", "")

// listed is the index of the property whose header lists others.
var listed int

func init() { // not above: the readers of the table return errLine
	for i, p := range properties {
		if p.header != "" {
			byLength[len(p.header)] = append(byLength[len(p.header)], i)
		}
		if p.header == metadata.ListHeader {
			listed = i
		}
	}
	members := namesOf(func(p *property) bool { return p.kind != payload })
	errLine.Detail = `A line must be a JSON object with "Payload" (a string) or "PayloadBase64", and optionally "` +
		strings.Join(members[:len(members)-1], `", "`) + `" and "` + members[len(members)-1] + `".`
}

// namesOf returns the members of some properties.
func namesOf(of func(*property) bool) (names []string) {
	for i := range properties {
		if p := &properties[i]; p.member != "" && of(p) {
			names = append(names, p.member)
		}
	}
	return names
}

// member returns the index of a member, or an error that names the nearest one.
func member[T string | []byte](name T) (int, error) {
	for i := range properties {
		if properties[i].member == string(name) && len(name) > 0 {
			return i, nil
		}
	}
	meant := ""
	if best := problem.Nearest(string(name), namesOf(func(*property) bool { return true })); best != "" {
		meant = " Did you mean " + best + "?"
	}
	return 0, problem.Newf(400, "invalid_line", "A line has no member %q.%s", name[:min(len(name), longestQuote)], meant)
}

// PropertyHeaders returns the headers of a request that set properties of its message: what identifies
// it, its content, and its times.
func PropertyHeaders() (identifying, of, times []string) {
	return headersOf(identity), headersOf(content), headersOf(when)
}

func headersOf(k kind) (names []string) {
	for i := range properties {
		if p := &properties[i]; p.kind == k {
			names = append(names, p.header)
		}
	}
	return names
}

// byLength are the indexes of the properties with a header, by the length of its name.
var byLength [32][]int

// given returns the properties whose header a request has, as bits by index. Most messages have few: to
// go through the headers once costs less than to look for each.
func given(h *fasthttp.RequestHeader) (set uint32) {
	for name := range h.All() {
		if len(name) >= len(byLength) {
			continue
		}
		for _, i := range byLength[len(name)] {
			if strings.EqualFold(properties[i].header, string(name)) {
				set |= 1 << i
			}
		}
	}
	return set
}

// fill sets the properties of some kinds that the headers of a request have.
func (d *Draft) fill(h *fasthttp.RequestHeader, kinds kind) error {
	d.request = true
	set := given(h)
	if len(d.carried) > 0 {
		set |= 1 << listed
	}
	for ; set != 0; set &= set - 1 { // in the order of the table
		p := &properties[bits.TrailingZeros32(set)]
		var err error
		switch {
		case p.kind&kinds == 0:
			if p.each != nil && kinds == ofLines && (p.read != nil || len(h.Peek(p.header)) > 0) {
				err = p.each
			}
		case p.read != nil:
			err = p.read(d, h)
		default:
			if text := h.Peek(p.header); len(text) > 0 {
				err = p.parse(d, text)
			}
		}
		if err != nil {
			return err
		}
	}
	return d.checkTimes()
}

// line sets the properties that a line of a batch has. It has its own JSON reader because most of a line
// is one long string: two searches find its end, and jsontext reads it once, into the memory that it is
// kept in. Input that other JSON readers may interpret differently is refused: an unknown or repeated
// member, or half of a surrogate pair.
func (d *Draft) line(text []byte) error {
	d.in = readerOf(text)
	seen := uint32(0) // bits of the members, by index
	err := d.in.object(errLine, func(name []byte) error {
		i, err := member(name)
		switch {
		case err != nil:
			return err
		case seen>>i&1 != 0:
			return errRepeated
		}
		seen |= 1 << i
		switch p := &properties[i]; {
		case p.kind != payload && d.in.null():
			return nil
		case p.json != nil:
			return p.json(d)
		default:
			text, err := d.in.word()
			if err == nil {
				err = p.parse(d, text)
			}
			return err
		}
	})
	if err == nil && (!d.in.Ends() || !d.hasPayload) {
		err = errLine
	}
	d.in = lineReader{}
	return err
}

// Set sets a property from a cell of its column. An empty cell is an absent member.
func (d *Draft) Set(column, cell string) error {
	switch {
	case !utf8.ValidString(cell) && column == "Payload":
		return errPayloadText
	case !utf8.ValidString(cell):
		return errCellText
	case cell == "":
		return nil
	}
	if name, ok := strings.CutPrefix(column, headerColumn); ok {
		return d.setHeader(name, cell)
	}
	i, err := member(column)
	if err != nil || properties[i].parse == nil {
		return noColumn(column)
	}
	return properties[i].parse(d, unsafe.Slice(unsafe.StringData(cell), len(cell))) // parse neither changes nor keeps it
}

// noColumn refuses a column that is no property.
func noColumn(name string) error {
	columns := namesOf(func(p *property) bool { return p.kind != payload && p.parse != nil })
	return problem.Newf(400, "invalid_columns", "There is no column %s; the columns are Payload or PayloadBase64, %s "+
		"and %s<name>.", quoted(name), strings.Join(columns, ", "), headerColumn)
}
