package publish

import (
	"encoding/binary"
	"errors"
	"strconv"
	"sync"
	"time"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/feature/journal"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/model/policy"
	"github.com/penstock-broker/penstock/internal/model/problem"
	"github.com/penstock-broker/penstock/internal/tool/jsontext"
	"github.com/penstock-broker/penstock/internal/tool/share"
)

const (
	// mostUnread bounds the results of one batch that its client has not read. It counts bytes as
	// stored: 13 for a stored line, or 2 and its MessageID. Many clients read nothing before they
	// have sent everything.
	mostUnread = 32 << 20
	// leastUnread is the number of bytes that each batch may leave unread even when its producer has
	// no share of the bound on answers left.
	leastUnread = 64 << 10
	// stallPatience is the longest time without a read after which a client with too many unread
	// results is refused. A client that reads is only held back.
	stallPatience = 5 * time.Second
	// firstBlock and largestBlock are the sizes of the blocks of results, bytes.
	firstBlock, largestBlock = 512, 64 << 10
	// mostRefusals bounds the different refusals of one batch that are kept verbatim.
	mostRefusals = 256
)

// oneOfMany is the detail of the refusals beyond mostRefusals.
const oneOfMany = "The line is refused; those before it say more."

// errAnswersUnread is the last line of a batch whose client does not read.
var errAnswersUnread = problem.New(413, "answers_unread",
	"Too many answers of this batch are unread. The lines answered above are done with, none after them was stored: "+
		"send those again, in smaller batches, or read while sending.")

// answers holds the results of one batch that its client has not read, oldest first. The results
// are stored compactly and formatted when they are written. One goroutine adds results, another one
// takes them.
type answers struct {
	channelID string
	taken     chan struct{} // capacity 1: answers were written to the client

	mu       sync.Mutex
	more     sync.Cond     // there are results, or no more will come
	blocks   [][]byte      // results, each as add encodes it
	at       int           // bytes of blocks[0] that were taken
	permit   *share.Permit // since WriteTo
	size     int64         // capacity of blocks, counted in permit
	most     bool          // size is more than the share of the producer
	ended    bool
	lines    int64 // added
	writing  time.Time
	refusals []refusal
	known    map[refusal]uint16
}

// A refusal is the reason, as the client sees it, why a line is not stored.
type refusal struct {
	status       int
	code, detail string
	last         bool // it ends the batch, so it says how many lines came before it
}

// A stored result begins with a byte of these flags.
const (
	hasID           = 1 << iota // the ID of the message follows
	hasKey                      // the length of the Key and that Key follow
	hasRefusal                  // two bytes follow: the index in refusals
	isRepeat                    // the message was stored before
	isScheduled                 // the message is a schedule
	isJournalled                // a receipt follows: the message is in the journal
	tellsDurable                // the channel has the journal: Ack says that the store has the message
	tellsReplicated             // Ack says that a second server has it
)

// ackFlag returns the flag with which a line says that its message is stored.
func ackFlag(in policy.Intake) byte {
	switch in.Ack {
	case policy.AckJournal:
		return tellsDurable
	case policy.AckReplicated:
		return tellsReplicated
	}
	return 0
}

func newAnswers(channelID string) *answers {
	a := &answers{channelID: channelID, taken: make(chan struct{}, 1)}
	a.more.L = &a.mu
	return a
}

// add appends the result of the next line. msg is nil if the line contained no valid message.
// repeat reports that the line is answered with success although nothing new was stored. in is how
// the channel took the line in. kind is isScheduled for a schedule, else 0.
func (a *answers) add(msg *durable.Message, err error, in policy.Intake, kind byte) (repeat bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.lines++
	no := uint16(0)
	repeats := errors.Is(err, durable.ErrDuplicate)
	if repeats {
		stored, status := repeated(msg, in, err)
		if msg = &stored; status > 0 {
			kind, err = kind|isRepeat, nil
		}
	}
	if err != nil {
		p := problem.From(err)
		kind, no = kind|hasRefusal, a.refusal(refusal{p.Status, p.Code, p.Detail, errors.As(err, &batchEnd{})})
	}
	if err == nil || repeats {
		kind |= ackFlag(in)
		if msg.Key == "" || msg.Scoped() || msg.Digested() {
			kind |= hasID
		}
		if msg.Key != "" && !msg.Digested() {
			kind |= hasKey
		}
	}
	a.room(3 + ident.Size + 256)
	last := len(a.blocks) - 1
	b := append(a.blocks[last], kind)
	if kind&hasRefusal != 0 {
		b = binary.BigEndian.AppendUint16(b, no)
	}
	if kind&hasID != 0 {
		b = append(b, msg.ID[:]...)
	}
	if kind&hasKey != 0 {
		b = append(append(b, byte(len(msg.Key))), msg.Key...) // ident.ValidName: at most 255
	}
	a.blocks[last] = b
	return kind&isRepeat != 0
}

// addReceipt appends the result of the next line, whose message is in the journal.
func (a *answers) addReceipt(msg *durable.Message, r journal.Receipt) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.lines++
	a.room(2 + journal.ReceiptSize + 256)
	last := len(a.blocks) - 1
	kind := byte(isJournalled)
	if msg.Key != "" && !msg.Digested() {
		kind |= hasKey
	}
	b := append(append(a.blocks[last], kind), r[:]...)
	if kind&hasKey != 0 {
		b = append(append(b, byte(len(msg.Key))), msg.Key...)
	}
	a.blocks[last] = b
}

// appendReceipt formats such a result and returns its stored size in bytes.
func appendReceipt(buf, kept []byte) ([]byte, int) {
	n := 1 + journal.ReceiptSize
	r := journal.Receipt(kept[1:n])
	buf = append(buf, `{"Status":202,"Ack":"journal"`...)
	if kept[0]&hasKey != 0 {
		m := durable.Message{Key: string(kept[n+1 : n+1+int(kept[n])])}
		n += 1 + len(m.Key)
		buf = append(append(append(buf, `,"MessageID":"`...), m.PublicID()...), '"')
	}
	buf = append(append(buf, `,"Location":"`...), receiptPath...)
	return append(append(buf, r.String()...), "\"}\n"...), n
}

// room ensures that the last block has room for n bytes.
func (a *answers) room(n int) {
	capacity := firstBlock
	if last := len(a.blocks) - 1; last >= 0 {
		b := a.blocks[last]
		if cap(b)-len(b) >= n {
			return
		}
		capacity = min(2*cap(b), largestBlock)
	}
	a.blocks = append(a.blocks, make([]byte, 0, capacity))
	a.count(int64(capacity))
}

// count adds n to the counted memory of unread answers. It cannot refuse, because the lines were
// already accepted. The reader stops in time instead (awaitRoom).
func (a *answers) count(n int64) {
	a.size += n
	switch {
	case n < 0:
		a.permit.Give(-n)
		a.most = false
	default:
		if a.most = !a.permit.Take(n); a.most {
			a.permit.Add(n)
		}
	}
}

// refusal returns the index of a refusal. Few refusals differ, except those that quote the line.
func (a *answers) refusal(r refusal) uint16 {
	no, ok := a.known[r]
	if ok {
		return no
	}
	if a.known == nil {
		a.known = map[refusal]uint16{}
	}
	if len(a.refusals) >= mostRefusals && r.detail != oneOfMany && !r.last {
		return a.refusal(refusal{r.status, r.code, oneOfMany, false})
	}
	no = uint16(len(a.refusals))
	a.refusals = append(a.refusals, r)
	a.known[r] = no
	return no
}

// flush wakes the writer for the added results.
func (a *answers) flush() { a.more.Signal() }

// end marks that no more results will come.
func (a *answers) end() {
	a.mu.Lock()
	a.ended = true
	a.mu.Unlock()
	a.more.Signal()
}

// drop frees the memory of the unread results.
func (a *answers) drop() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.blocks = nil
	a.size = 0
	a.permit.Close()
}

// full reports whether the client has left too many results unread.
func (a *answers) full() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.size > mostUnread || a.size > leastUnread && a.most
}

// stalled returns how long the current write of answers has lasted, or 0 where no write is under
// way.
func (a *answers) stalled() time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.writing.IsZero() {
		return 0
	}
	return time.Since(a.writing)
}

// wrote marks the answers that next returned as written.
func (a *answers) wrote(n int) {
	a.permit.Moved(n)
	a.mu.Lock()
	a.writing = time.Time{}
	a.mu.Unlock()
	select {
	case a.taken <- struct{}{}:
	default:
	}
}

// next waits for results and appends as many answers as fit into the capacity of buf, at least one.
// It returns buf unchanged when there are no more.
func (a *answers) next(buf []byte) []byte {
	a.mu.Lock()
	defer a.mu.Unlock()
	for !a.waiting() {
		if a.ended {
			return buf
		}
		a.more.Wait()
	}
	for a.waiting() && len(buf) < cap(buf)-longestAnswer {
		b := a.blocks[0][a.at:]
		var n int
		buf, n = a.appendResult(buf, b)
		a.at += n
	}
	a.writing = time.Now()
	return buf
}

// longestAnswer bounds the size of most answers, bytes: an ID of 255 bytes twice, the channel's ID,
// and the rest of the line.
const longestAnswer = 1 << 10

// waiting reports whether the first block has a result to take, and frees the blocks that were
// taken completely.
func (a *answers) waiting() bool {
	for len(a.blocks) > 0 && a.at == len(a.blocks[0]) {
		a.at = 0
		if len(a.blocks) == 1 {
			a.blocks[0] = a.blocks[0][:0]
			return false
		}
		a.count(-int64(cap(a.blocks[0])))
		a.blocks[0] = nil
		a.blocks = a.blocks[1:]
	}
	return len(a.blocks) > 0
}

// appendResult formats the first of the stored results and returns its stored size in bytes.
func (a *answers) appendResult(buf, kept []byte) ([]byte, int) {
	kind, n := kept[0], 1
	if kind&isJournalled != 0 {
		return appendReceipt(buf, kept)
	}
	switch {
	case kind&isRepeat != 0:
		buf = append(buf, `{"Status":200`...)
	case kind&hasRefusal == 0:
		buf = append(buf, `{"Status":201`...)
	default:
		r := &a.refusals[binary.BigEndian.Uint16(kept[n:])]
		n += 2
		buf = append(buf, `{"Status":`...)
		buf = strconv.AppendInt(buf, int64(r.status), 10)
		buf = append(buf, `,"code":`...)
		buf = jsontext.Append(buf, r.code)
		buf = append(buf, `,"detail":`...)
		buf = jsontext.Append(buf, r.detail)
		if r.last {
			buf = append(buf, `,"Taken":`...)
			buf = strconv.AppendInt(buf, a.lines-1, 10)
		}
	}
	var m durable.Message
	if kind&(hasID|hasKey) == 0 {
		return append(buf, "}\n"...), n
	}
	switch {
	case kind&tellsDurable != 0:
		buf = append(buf, `,"Ack":"durable"`...)
	case kind&tellsReplicated != 0:
		buf = append(buf, `,"Ack":"replicated"`...)
	}
	if kind&hasID != 0 {
		n += copy(m.ID[:], kept[n:])
	}
	if kind&hasKey != 0 {
		m.Key = string(kept[n+1 : n+1+int(kept[n])])
		n += 1 + len(m.Key)
	}
	buf = append(buf, `,"MessageID":"`...)
	buf = append(buf, m.PublicID()...)
	buf = append(buf, `","Location":"`...)
	if kind&isScheduled != 0 {
		buf = appendScheduledURL(buf, a.channelID, &m)
	} else {
		buf = appendMessageURL(buf, a.channelID, &m)
	}
	return append(buf, "\"}\n"...), n
}
