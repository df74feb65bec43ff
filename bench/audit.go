package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"time"
)

// maxAudit bounds the messages of an audited run, because the audit asks the broker about each.
const maxAudit = maxInquiry

// An arrival is a delivery as a consumer sees it. Its slices are valid while it
// is handed over.
type arrival struct {
	identity, body []byte
	key            []byte // ordering key; empty of a pull job
	details        func() details
}

// The details of an arrival are read only where they are needed.
type details struct{ messageID, contentType, name, attempt string }

// An Audit is the result of a comparison of each delivery with its message, and
// of the broker's own account of each message.
type Audit struct {
	Messages   int   // that the broker was asked about
	Compared   int64 // deliveries
	Alike      int64 // compared deliveries that equal the published message
	Bytes      int64 // of the bodies compared
	Deviations int64
	Offenders  []string `json:",omitempty"` // the first of them
}

// An audit compares deliveries during a run. It proves more than the ledger: it compares bytes
// instead of a checksum, every field of the delivery, and it requires that the first attempt is the
// only one.
type audit struct {
	run         uint64
	payloads    *Payloads
	contentType string

	mu   sync.Mutex
	sum  Audit
	body []byte
}

func (a *audit) deviate(format string, args ...any) {
	if a.sum.Deviations++; len(a.sum.Offenders) < maxListed {
		a.sum.Offenders = append(a.sum.Offenders, "deviation: "+fmt.Sprintf(format, args...))
	}
}

// compare checks one delivery.
func (a *audit) compare(consumer string, d Delivery, got arrival) {
	a.mu.Lock()
	defer a.mu.Unlock()
	before, is := a.sum.Deviations, got.details()
	a.sum.Compared++
	a.sum.Bytes += int64(len(got.body))
	if !d.Known || d.ID.Run != a.run {
		a.deviate("consumer %s, message %s: no identity of this run", consumer, is.messageID)
		return
	}
	a.body = a.payloads.Append(a.body[:0], d.ID)
	if !bytes.Equal(got.body, a.body) {
		a.deviate("consumer %s, sequence %d: body %s of %d bytes became one of %d bytes", consumer, d.ID.Seq,
			a.payloads.Name(d.ID.Seq), len(a.body), len(got.body))
	}
	for _, c := range []struct{ what, got, want string }{
		{"message ID", is.messageID, string(appendKey(nil, a.run, d.ID.Seq))},
		{"Content-Type", is.contentType, a.contentType},
		{nameHeader, is.name, a.payloads.Name(d.ID.Seq)},
		{"attempt", is.attempt, "1"},
	} {
		if c.got != c.want {
			a.deviate("consumer %s, sequence %d: %s is %q, not %q", consumer, d.ID.Seq, c.what, c.got, c.want)
		}
	}
	if a.sum.Deviations == before {
		a.sum.Alike++
	}
}

// close asks the broker about every message and adds the failures of the run itself.
func (a *audit) close(ctx context.Context, w *window, r *Result) (*Audit, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for seq := range w.schedule.Issued() {
		fault, err := w.account(ctx, seq)
		if err != nil {
			return nil, fmt.Errorf("audit: sequence %d: %w", seq, err)
		}
		if a.sum.Messages++; fault != "" {
			a.deviate("the broker says: sequence %d %s", seq, fault)
		}
	}
	v := r.Ledger
	for _, c := range []struct {
		what      string
		got, want int64
	}{
		{"messages sent", v.Sent, int64(w.config.Messages)},
		{"messages acknowledged", v.Acked, v.Sent},
		{"deliveries that arrived", v.Delivered, v.Expected},
		{"deliveries compared", a.sum.Compared, v.Expected},
		{"dead letters", v.Dead, 0},
		{"answers that are no success", r.ErrorCount(), 0},
	} {
		if c.got != c.want {
			a.deviate("%s: %d, not %d", c.what, c.got, c.want)
		}
	}
	return &a.sum, nil
}

// account returns the difference between the broker's record of a message and one delivered job
// with one attempt for each consumer, empty if there is none. The broker may record an outcome a
// moment after its answer, so account asks again about an unfinished job until ctx ends.
func (w *window) account(ctx context.Context, seq uint64) (fault string, err error) {
	consumers := map[string]bool{}
	for _, k := range w.subject.consumers {
		if k.index == w.ledger.Channel(seq) {
			consumers[k.id] = true
		}
	}
	path := "/channel/" + w.subject.channels[w.ledger.Channel(seq)] + "/message/" + string(appendKey(nil, w.run, seq))
	for {
		status, body, err := w.control.do(ctx, http.MethodGet, path, nil)
		if err != nil {
			return "", err
		}
		if status != http.StatusOK {
			return fmt.Sprintf("has status %d: %s", status, clip(body, 200)), nil
		}
		var m messageView
		if err := json.Unmarshal(body, &m); err != nil {
			return "", err
		}
		fault, final := m.fault(consumers)
		if final {
			return fault, nil
		}
		pause(ctx, 20*time.Millisecond)
		if ctx.Err() != nil {
			return fault, nil
		}
	}
}

// A messageView has the fields that an audit reads from the broker's answer about a message.
type messageView struct {
	Status string
	Jobs   []struct {
		ConsumerID, Status string
		Attempts           int
	}
}

// fault returns the difference between the view and one first delivery to each consumer, empty if
// there is none. final is false while the view may still change.
func (m *messageView) fault(consumers map[string]bool) (fault string, final bool) {
	if m.Status != "DISPATCHED" || len(m.Jobs) != len(consumers) {
		return fmt.Sprintf("is %s with %d jobs, not DISPATCHED with %d", m.Status, len(m.Jobs), len(consumers)),
			m.Status == "DISPATCHED"
	}
	seen := map[string]bool{}
	for _, j := range m.Jobs {
		if j.Status != "DELIVERED" || j.Attempts != 1 || !consumers[j.ConsumerID] || seen[j.ConsumerID] {
			return fmt.Sprintf("has a job for %s, %s with %d attempts", j.ConsumerID, j.Status, j.Attempts),
				j.Status != "QUEUED" && j.Status != "INFLIGHT"
		}
		seen[j.ConsumerID] = true
	}
	return "", true
}
