package simulation

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/feature/bulk"
	"github.com/penstock-broker/penstock/internal/model/apitype"
	"github.com/penstock-broker/penstock/internal/model/policy"
	"github.com/penstock-broker/penstock/internal/model/problem"
)

// A bulkPost is a file of messages and what its producer was told.
type bulkPost struct {
	url    string
	file   string
	rows   []string // payloads
	sent   bool
	status int    // 0: no answer
	code   string // of a problem
}

// bulk is producers who post files of messages, with a rate, so that a bulk has several steps, and
// people who pause bulks.
func (w *world) bulk() {
	r := draw(w.seed, word("bulk"))
	for n := 0; w.plan.bulks && n < 2; n++ {
		time.Sleep(r.between(0, w.plan.active/4))
		no := w.channels[r.below(len(w.channels))]
		p := &bulkPost{url: fmt.Sprintf("http://files.example/%d", n)}
		var file strings.Builder
		file.WriteString("Payload,MessageID,ContentType,Header:X-Trace\n")
		for row := range 4 + r.below(12) {
			payload, key := fmt.Sprintf("row %d of bulk %d for channel %d", row, n, no), ""
			if r.hit(300) {
				key = fmt.Sprintf("bulk-%d-%d", n, row)
			}
			fmt.Fprintf(&file, "%s,%s,%s,x-%s\n", payload, key, contentType, payload)
			p.rows = append(p.rows, payload)
		}
		p.file = file.String()
		w.mu.Lock()
		w.bulks = append(w.bulks, p)
		for _, payload := range p.rows {
			w.byPayload[payload] = &post{channel: no, payload: payload}
		}
		w.mu.Unlock()
		rate := fmt.Sprintf("%d/1s", 12+r.below(12))
		if b := w.broker(r.below(w.plan.brokers)); b != nil {
			b.postBulk(p, no, rate)
		}
		for range 8 {
			time.Sleep(r.between(0, w.plan.active/20))
			if found, ok := w.store.expanding(); ok && w.faulty() {
				w.store.pauseBulk(found.ID, !found.Paused)
			}
		}
	}
}

func (b *broker) postBulk(p *bulkPost, channel uint32, rate string) {
	ch := b.life.w.store.channel(channel)
	body, err := json.Marshal(apitype.BulkRequest{FileURL: p.url, Format: bulk.CSV, Rate: rate})
	if err != nil {
		panic(err) // it has texts only
	}
	rc := request(map[string]string{"channel": ch.ID}, map[string]string{
		"X-Broker-Channel-Token": ch.Token, "X-Broker-Producer-ID": "p", "X-Broker-Producer-Token": "t-p"}, string(body))
	rc.Request.Header.SetContentType("application/json")
	p.sent = true
	err = b.bulks.Accept(rc)
	if !b.life.awake() {
		return // the connection broke
	}
	p.status = rc.Response.StatusCode()
	var of *problem.Problem
	switch {
	case errors.As(err, &of):
		p.status, p.code = of.Status, of.Code
	case err != nil:
		p.status, p.code = 500, err.Error()
	}
	b.life.w.told("bulk", fmt.Sprintf("%s: %d %s", p.url, p.status, p.code))
}

// files is how one life fetches files.
type files struct{ l *life }

// A breaking is a body that breaks off.
type breaking struct{ io.Reader }

func (b breaking) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if err != nil {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

func (f files) RoundTrip(req *http.Request) (*http.Response, error) {
	l := f.l
	w := l.w
	var p *bulkPost
	w.mu.Lock()
	for _, one := range w.bulks {
		if one.url == req.URL.String() {
			p = one
		}
	}
	w.mu.Unlock()
	way := l.chance("file", 0)
	if p == nil || !l.awake() || !l.sleep(req.Context(), way.between(20*time.Microsecond, 5*time.Millisecond)) {
		return nil, errConnection
	}
	answer := &http.Response{StatusCode: http.StatusOK, ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{},
		ContentLength: -1, Request: req}
	body := io.Reader(strings.NewReader(p.file))
	switch rates := w.plan.consumer; {
	case !w.faulty():
	case way.hit(rates.refuse):
		return nil, errConnection
	case way.hit(rates.fail):
		answer.StatusCode = http.StatusServiceUnavailable
	case way.hit(rates.lost):
		body = breaking{strings.NewReader(p.file[:way.below(len(p.file))])}
	case way.hit(w.plan.crash):
		l.crash("in a fetch")
	}
	answer.Body = io.NopCloser(body)
	return answer, nil
}

// newBulks is the part of a broker in bulks. A fetch is tried again for as long as there are faults.
func (b *broker) newBulks(store storeSeam) *bulk.Bulks {
	return bulk.New(bulk.Options{
		Store: store, Publisher: b.plane.Publisher, Catalogue: b.catalogue, Cluster: b.node, Bodies: b.bodies,
		Client: &http.Client{Transport: files{b.life}, CheckRedirect: noRedirect}, FetchTimeout: 5 * time.Second,
		MostBytes: 1 << 20,
		Retries: policy.Policy{MaxRetries: 1000, MaxDelay: time.Second,
			Backoff: policy.Waits(200 * time.Millisecond)}, Log: silent,
	})
}

// checkBulks checks that each row of a bulk that was accepted is one message, and that of one which
// was refused none is (I19). stored are all messages by payload; that none is there twice is I9.
func (w *world) checkBulks(stored map[string]*durable.Message) {
	for _, p := range w.bulks {
		there, missing := 0, ""
		for _, payload := range p.rows {
			if stored[payload] != nil {
				there++
			} else {
				missing = payload
			}
		}
		unknown := p.sent && (p.status == 0 || p.code == problem.ErrOutcomeUnknown.Code)
		switch {
		case p.status == http.StatusAccepted && there < len(p.rows), unknown && there > 0 && there < len(p.rows):
			w.checker.report(none, "I19: %d of %d rows of %s are messages, and %q is not", there, len(p.rows), p.url, missing)
		case p.status != http.StatusAccepted && !unknown && there > 0:
			w.checker.report(none, "I19: %s was answered %d %s, and %d of its rows are messages", p.url, p.status, p.code, there)
		case w.plan.calm && p.sent && p.status != http.StatusAccepted:
			w.checker.report(none, "I19: %s was answered %d %s without any fault", p.url, p.status, p.code)
		}
	}
	for _, b := range w.store.allBulks() {
		if b.State != durable.BulkDone || b.Rejected > 0 || b.Published != b.Total {
			w.checker.report(b.ID, "I19: a bulk of %d rows ended in the state %d: %d published, %d duplicates, %d rejected; %s",
				b.Total, b.State, b.Published, b.Duplicates, b.Rejected, b.Reason)
		}
	}
}

// unpause lets all bulks go on, after the last fault.
func (w *world) unpause() {
	if b, ok := w.store.expanding(); ok && b.Paused {
		w.store.pauseBulk(b.ID, false)
	}
}
