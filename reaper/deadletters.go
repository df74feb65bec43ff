package reaper

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/model/policy"
	"github.com/penstock-broker/penstock/internal/tool/failpoint"
)

// What becomes of dead letters by the policy of their consumer: they are redriven after the
// consumer has recovered, forwarded to another channel, or discarded after a time. The scan
// over them starts again and again, so a death behind it is found in its next turn, and a
// crash loses nothing.

const (
	// dlqTick is the interval of rounds, and dlqRate the number of dead letters that a round
	// redrives or forwards for one consumer: 100 in a second.
	dlqTick = 2 * time.Second
	dlqRate = 200
	// dlqPage is the number of dead letters that one statement reads, and dlqPages the number
	// of statements for one consumer in one round.
	dlqPage  = 500
	dlqPages = 10
	// dlqPause is the pause between two scans, as a multiple of the time that a scan took.
	dlqPause = 20
	// maxRedrives bounds how often the broker redrives a job by itself.
	maxRedrives = 5
	// maxHops bounds how often a message is forwarded.
	maxHops = 5
)

// redrivePauses are how much later than the death the consumer must have succeeded, by the
// number of redrives before.
var redrivePauses = [maxRedrives]time.Duration{0, time.Minute, 5 * time.Minute, 30 * time.Minute, 2 * time.Hour}

// A deadSweep scans the dead letters of the consumers that this broker repairs. Only its
// loop uses it.
type deadSweep struct {
	*Reaper
	scans map[uint32]*deadScan // by consumer
}

// A deadScan is a scan over the dead letters of one consumer.
type deadScan struct {
	k       *durable.Consumer
	dlq     policy.DLQ
	from    ident.ID      // the next dead letter
	took    time.Duration // by the present scan
	next    time.Time     // when the next scan may begin
	success int64         // Unix ms: the last delivery when the scan began
	budget  int           // dead letters that this round may still move
}

func (r *Reaper) dlqLoop(ctx context.Context) {
	s := &deadSweep{Reaper: r, scans: map[uint32]*deadScan{}}
	r.rounds(ctx, dlqTick, "dead letters cannot be handled as their consumers' policies say; the reaper tries again",
		s.round)
}

// round visits the consumers whose dead letters are not only kept. After a failure it
// continues with the others. It returns the last error.
func (s *deadSweep) round(ctx context.Context) (failure error) {
	maps.DeleteFunc(s.scans, func(no uint32, _ *deadScan) bool { return s.deleted(no) })
	for _, no := range s.Catalogue.ConsumerNos() {
		k := s.Catalogue.ConsumerByNo(no)
		if k == nil || s.Policies.Of(k.Policy).DLQ.Kind == policy.DLQKeep || !s.Cluster.Owns(no) {
			delete(s.scans, no)
			continue
		}
		w := s.scans[no]
		if dlq := s.Policies.Of(k.Policy).DLQ; w == nil || w.dlq != dlq {
			w = &deadScan{dlq: dlq}
			s.scans[no] = w
		}
		w.k, w.budget = k, dlqRate
		failure = cmp.Or(s.scan(ctx, w), failure)
	}
	return failure
}

// scan does the part of a scan that belongs to one round.
func (s *deadSweep) scan(ctx context.Context, w *deadScan) (err error) {
	start := time.Now()
	if start.Before(w.next) {
		return nil
	}
	done := false
	defer func() {
		w.took += time.Since(start)
		if done {
			w.next, w.took = time.Now().Add(max(dlqTick, dlqPause*w.took)), 0
		}
	}()
	if w.from.IsZero() && w.dlq.Kind == policy.DLQRedrive {
		if w.success, err = s.Store.LastDelivery(ctx, w.k.No); err != nil {
			return err
		}
	}
	for range dlqPages {
		page, next, err := s.Store.DeadHeads(ctx, w.k.No, w.from, dlqPage)
		if err != nil {
			return err
		}
		upto, err := s.handle(ctx, w, page)
		if err != nil {
			return err
		}
		if upto < len(page) { // out of budget
			w.from = page[upto].ID
			return nil
		}
		w.from = next
		if next.IsZero() {
			done = true
			return nil
		}
	}
	return nil
}

// handle does with a page what the policy says. It returns how many dead letters of the page
// it has handled.
func (s *deadSweep) handle(ctx context.Context, w *deadScan, page []durable.DeadHead) (upto int, err error) {
	var due []durable.DeadHead
	now := s.Cluster.NowMs()
	for upto = 0; upto < len(page); upto++ {
		if !w.due(&page[upto], now) {
			continue
		}
		if w.dlq.Kind != policy.DLQExpire {
			if w.budget == 0 {
				break
			}
			w.budget--
		}
		due = append(due, page[upto])
	}
	switch {
	case len(due) == 0:
		return upto, nil
	case w.dlq.Kind == policy.DLQRedrive:
		ids := make([]ident.ID, len(due))
		for i, d := range due {
			ids[i] = d.ID
		}
		n, err := s.Jobs.RedriveAgain(ctx, w.k.No, ids)
		if err == nil {
			s.Log.Info("the consumer has recovered; dead letters are redriven", "consumer", w.k.No, "jobs", n)
		}
		return upto, err
	case w.dlq.Kind == policy.DLQForward:
		return upto, s.forward(ctx, w, due)
	}
	return upto, s.Store.Dispose(ctx, w.k.No, due, durable.Discarded)
}

// due reports whether the policy asks for something to be done with a dead letter. Jobs that
// the consumer has refused, and jobs that were too old, are not redriven: they would end alike.
func (w *deadScan) due(d *durable.DeadHead, nowMs int64) bool {
	switch w.dlq.Kind {
	case policy.DLQExpire:
		return d.Disposal != durable.Discarded && d.DiedMs+w.dlq.After.Milliseconds() <= nowMs
	case policy.DLQForward:
		return d.Disposal == durable.Kept && d.Reason != durable.ConsumerDeleted && d.Reason != durable.QueuePurged
	case policy.DLQRedrive:
		switch d.Reason {
		case durable.AttemptsExhausted, durable.NoReason, durable.BlockedKey:
		default:
			return false
		}
		return d.Disposal == durable.Kept && d.Redrives < maxRedrives &&
			w.success > d.DiedMs+redrivePauses[d.Redrives].Milliseconds()
	}
	return false
}

// forward publishes dead letters to another channel and then notes that. After a crash in
// between they are published again and refused, since their message IDs are the same.
func (s *deadSweep) forward(ctx context.Context, w *deadScan, due []durable.DeadHead) (failure error) {
	target := s.Catalogue.Channel(w.dlq.Channel)
	if target == nil {
		return errors.New("reaper: the channel " + w.dlq.Channel + " of dead letters does not exist")
	}
	if target.No == w.k.ChannelNo { // by the default of the installation: it would loop
		return nil
	}
	var done []durable.DeadHead
	for _, d := range due {
		if failure = s.forwardOne(ctx, w, target.No, d); failure != nil {
			break
		}
		done = append(done, d)
	}
	if len(done) > 0 {
		failpoint.At(failpoint.AfterForward)
	}
	return cmp.Or(s.Store.Dispose(ctx, w.k.No, done, durable.Forwarded), failure)
}

// forwardOne publishes one dead letter.
func (s *deadSweep) forwardOne(ctx context.Context, w *deadScan, target uint32, d durable.DeadHead) error {
	msgs, err := s.Store.Messages(ctx, w.k.ChannelNo, []ident.ID{d.ID})
	if err != nil || len(msgs) == 0 {
		return err
	}
	ch := s.Catalogue.ChannelByNo(w.k.ChannelNo)
	if ch == nil {
		return nil
	}
	m := &msgs[0]
	id := m.ID.Job(w.k.Position)
	job := id.String()
	headers, hops := withoutDead(m.Headers)
	if hops >= maxHops {
		s.Log.Warn("a dead letter was forwarded too often; it stays", "consumer", w.k.No, "message", m.PathID(), "job", job)
		return nil
	}
	for _, h := range [...][2]string{
		{"X-Dead-Job-ID", job}, {"X-Dead-Consumer-ID", w.k.ID}, {"X-Dead-Channel-ID", ch.ID},
		{"X-Dead-Message-ID", m.PathID()}, {"X-Dead-Reason", d.Reason.String()}, {hopsHeader, strconv.Itoa(hops + 1)},
	} {
		if h[1] != "" {
			headers = append(headers, h[0]+":"+h[1]+"\n"...)
		}
	}
	producer := m.ProducerNo
	if p := s.Catalogue.ProducerByNo(producer); p != nil && p.Deleted {
		producer = 0 // a deleted producer publishes nothing
	}
	err = s.Forward(ctx, &durable.Message{
		ChannelNo: target, ProducerNo: producer, Priority: m.Priority, Key: ident.ForwardID(id, d.DiedMs),
		ContentType: m.ContentType, Headers: headers, Payload: m.Payload,
	})
	switch {
	case errors.Is(err, durable.ErrDuplicate): // before a crash
		return nil
	case errors.Is(err, durable.ErrConflict), errors.Is(err, durable.ErrRejected):
		s.Log.Warn("a dead letter cannot be forwarded; it stays", "consumer", w.k.No, "message", m.PathID(), "job", job,
			"error", err)
		return nil
	}
	return err
}

// hopsHeader counts how often a message was forwarded.
const hopsHeader = "X-Dead-Hops"

// withoutDead returns metadata headers without those of an earlier forward, and its hops.
func withoutDead(stored []byte) (rest []byte, hops int) {
	for line := range strings.Lines(string(stored)) {
		name, value, _ := strings.Cut(line, ":")
		if strings.EqualFold(name, hopsHeader) {
			hops, _ = strconv.Atoi(strings.TrimSpace(value))
			hops = max(hops, 0) // a producer may have set it: below 0 it would prolong a circle
		}
		if !strings.HasPrefix(strings.ToLower(name), "x-dead-") {
			rest = append(rest, line...)
		}
	}
	return rest, hops
}
